"""``python -m ssp_redis`` is ``ssp-redis``."""

from ssp_redis.cli import main

if __name__ == "__main__":
    main(prog_name="ssp-redis")

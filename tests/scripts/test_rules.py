"""The rules of the control scripts. Each test also shows that it fails once its rule is taken out of the script."""

from __future__ import annotations

import pytest

from ssp_redis.keys import CONTROL

from .stage import Refused, Stage, both, rule, without

FENCE = "local refused = refusal()"
NO_FENCE = "local refused = nil"


def refused(call: object, *arguments: object) -> int:
    """The code with which a call is refused; 0 if it is not."""
    try:
        call(*arguments)  # type: ignore[operator]
    except Refused as refusal:
        return refusal.code
    return 0


# -- joining -----------------------------------------------------------------------------------------------------------


@rule(removed=without("join", "not replay and (tonumber(holder) or 0) ~= known", "false"))
def test_a_late_duplicate_of_an_old_join_does_not_supersede_its_successor(stage: Stage) -> None:
    old = stage.process(0)
    new = stage.process(0)
    new.join()
    with pytest.raises(Refused) as caught:
        old.join()
    assert (caught.value.code, caught.value.words[0]) == (-6, str(new.incarnation))
    new.tick()


@rule(removed=without("join", "local replay = holder_nonce == nonce", "local replay = false"))
def test_a_join_said_twice_gets_the_same_answer(stage: Stage) -> None:
    member = stage.process(0)
    first = member.join(workers=1)
    before = stage.everything()
    assert member.join_again() == first
    assert stage.everything() == before


@rule(removed=without("join", "if replay and why ~= '-' then", "if false then"))
def test_a_join_said_again_does_not_revive_who_was_evicted_meanwhile(stage: Stage) -> None:
    member = stage.join(0)
    member.evict()
    assert refused(member.join_again) == -3
    assert stage.members() == set()


@rule(removed=without("join", "math.max(tonumber(config[10] or 0) + 1, us)", "tonumber(config[10] or 0) + 1"))
def test_an_incarnation_is_not_used_again_after_a_rollback(stage: Stage) -> None:
    stage.join(0)
    fall_back = stage.backup()
    lost = stage.join(0)
    fall_back()
    assert stage.join(0).incarnation > lost.incarnation


@rule(removed=without("join", "math.max(tonumber(config[10] or 0) + 1, us)", "us"))
def test_an_incarnation_is_not_used_again_when_the_servers_clock_runs_backwards(stage: Stage) -> None:
    old = stage.join(0)
    ahead = old.incarnation + 3_600_000_000
    stage.client.hset(stage.key("config"), "last", ahead)
    assert stage.join(0).incarnation > ahead


@rule(removed=without("join", "tonumber(redis.call('HGET', CLOCKS, worker) or 0)", "0"))
def test_an_id_resumes_at_its_clock_for_what_is_done_is_done(stage: Stage) -> None:
    one = stage.join(0)
    one.tick()
    one.tick()
    one.leave()
    stage.client.hset(stage.key("config"), "floor", 0)
    assert stage.join(0).clock == 2


@rule(removed=without("join", "raise_floor())\n", "0)\n"))
def test_a_new_id_enters_at_the_floor(stage: Stage) -> None:
    one, two = stage.team(2)
    for member in (one, two):
        member.tick()
    late = stage.join(2)
    assert late.clock == 1
    assert one.sync().low == 1


@rule(removed=without("join", "  change_membership()\n  if started", "  if started"))
def test_a_return_raises_the_membership_version(stage: Stage) -> None:
    (one, two) = stage.team(2)
    before = one.sync().membership
    assert stage.join(two.worker).join_again().membership > before
    assert one.sync().membership > before


@rule(removed=without("join", "quorum(ms, workers)", "true"))
def test_nobody_is_admitted_before_the_quorum_is_there(stage: Stage) -> None:
    first = stage.join(0, workers=2, staleness=-1)
    assert not first.sync().admits(0)
    stage.join(1)
    assert stage.news().admits(0)
    assert first.sync().admits(0)


@rule(removed=without("join", "if redis.call('ZCARD', ORDER) > 0 then\n    return", "if false then\n    return"))
def test_a_new_run_does_not_begin_while_the_old_one_has_members(stage: Stage) -> None:
    stage.join(0)
    before = stage.everything()
    assert refused(lambda: stage.process(1).join(name="two")) == -5
    assert stage.everything() == before


@rule(removed=without("join", "redis.call('SISMEMBER', RUNS, name) == 1", "false"))
def test_a_name_is_used_for_one_run_only(stage: Stage) -> None:
    stage.join(0, name="one").leave()
    second = stage.process(0)
    second.known = 0
    second.join(name="two")
    second.leave()
    third = stage.process(0)
    third.known = 0
    assert refused(lambda: third.join(name="one")) == -5


@rule(removed=without("join", "if redis.call('EXISTS', CLOCKS, IDS, LOG) < 3 or", "if"))
def test_a_job_that_lost_its_clocks_is_not_begun_from_zero(stage: Stage) -> None:
    stage.join(0, workers=1).tick()
    stage.client.delete(stage.key("clocks"))
    assert refused(lambda: stage.join(1)) == -1


@rule(
    removed=without(
        "join", "for i, field in ipairs({'workers', 'staleness', 'lease'}) do", "for i, field in ipairs({}) do"
    )
)
def test_other_values_than_those_of_the_job_are_refused_and_both_are_named(stage: Stage) -> None:
    stage.join(0, staleness=3)
    stage.configure("staleness", 5)
    with pytest.raises(Refused) as caught:
        stage.join(1, staleness=5)
    # compared with the value as created, not with the one in force
    assert caught.value.words == ["staleness", "3", "5"]
    assert stage.join(1, staleness=3).sync().staleness == 5


# -- ticking -----------------------------------------------------------------------------------------------------------


@rule(removed=without("tick", "if stored < wanted then", "if true then"))
def test_a_tick_said_twice_or_late_counts_once(stage: Stage) -> None:
    (one,) = stage.team(1, staleness=3)
    one.tick()
    one.clock = 0
    before = stage.everything()
    one.tick()
    assert stage.clocks() == {"0": 1}
    assert stage.everything() == before


@rule(removed=without("tick", FENCE, NO_FENCE))
def test_an_evicted_worker_changes_no_clock(stage: Stage) -> None:
    one, two = stage.team(2)
    one.evict()
    before = stage.everything()
    assert refused(one.tick) == -3
    assert stage.everything() == before
    two.tick()


@rule(removed=without("tick", FENCE, NO_FENCE))
def test_a_superseded_worker_changes_no_clock_and_learns_by_whom(stage: Stage) -> None:
    old = stage.join(0)
    stage.join(0)
    with pytest.raises(Refused) as caught:
        old.tick()
    assert (caught.value.code, caught.value.words) == (-2, ["host", "7"])
    assert stage.clocks() == {"0": 0}


@rule(removed=without("tick", "if config[1] ~= ARGV[1] then", "if false then"))
def test_a_worker_of_an_earlier_run_changes_nothing(stage: Stage) -> None:
    old = stage.join(0, name="one")
    old.leave()
    new = stage.process(0)
    new.known = 0
    new.join(name="two")
    old.incarnation = new.incarnation
    assert refused(old.tick) == -1
    assert stage.clocks() == {"0": 0}


@rule(removed=without("tick", "if stored ~= clock then", "if false then"))
def test_a_tick_from_a_clock_that_is_not_the_stored_one_is_sent_to_sync(stage: Stage) -> None:
    (one,) = stage.team(1)
    one.tick()
    before = stage.everything()
    assert refused(stage.call, "tick", one.run, one.epoch, "0", one.incarnation, 0, 3, "-:", -1) == -4
    assert stage.everything() == before


@rule(removed=without("tick", "if lowest() > stored then", "if false then"))
def test_who_may_run_is_told_when_the_min_moves(stage: Stage) -> None:
    fast, slow = stage.team(2)
    fast.tick()
    assert not fast.sync().admits(1)
    stage.heard()
    slow.tick()
    assert stage.news().admits(1)


@rule(removed=without("tick", "if lowest() > stored then", "if true then"))
def test_nothing_is_announced_while_the_min_stands(stage: Stage) -> None:
    fast, slow = stage.team(2, staleness=5)
    stage.heard()
    fast.tick()
    fast.tick()
    assert stage.heard() == []
    slow.tick()
    assert [message.low for message in stage.heard()] == [1]


@rule(removed=without("tick", "if known < off or", "if false and known < off or"))
def test_a_position_that_the_log_no_longer_has_brings_no_wrong_tags(stage: Stage) -> None:
    """A negative index would count from the tail, and silently give the wrong ones."""
    (one,) = stage.team(1, staleness=5)
    one.tick()
    one.tick()
    stage.client.ltrim(stage.key("log"), 2, -1)
    stage.client.hset(stage.key("config"), "off", 2)
    assert one.tick(known=1).rest == ["-", "!"]
    assert one.tick(known=4).rest[1:] == [one.tag]


@rule(removed=without("tick", "if stored < clock or epoch ~= ARGV[2] then", "if stored < clock then"))
def test_who_has_not_heard_of_an_epoch_is_sent_to_sync(stage: Stage) -> None:
    one, two = stage.team(2, staleness=3)
    fall_back = stage.backup()
    two.tick()
    fall_back()
    two.sync()
    assert refused(one.tick) == -4
    one.sync()
    one.tick()


@rule(removed=without("tick", "append('t:'", "append('j:'"))
def test_every_tick_stands_in_the_log_in_order(stage: Stage) -> None:
    one, two = stage.team(2, staleness=3)
    expected = [member.tick() and member.tag for member in (one, two, two, one)]
    assert stage.log()[2:] == expected


@rule(removed=without("*", "if length % 1024 == 0 and length >= 2048", "if false"))
def test_the_log_of_a_job_without_tables_stays_short(stage: Stage) -> None:
    """Whatever it is that its multiples of 1024 fall upon: here never a tick."""
    for _ in range(600):
        one = stage.join(0)
        one.tick()
        one.tick()
        one.leave()
    assert stage.client.llen(stage.key("log")) < 2048
    assert int(stage.config("off")) + stage.client.llen(stage.key("log")) == 4 * 600


# -- leases ------------------------------------------------------------------------------------------------------------


def reap_first(scripts: dict[str, str]) -> None:
    text = scripts["sync"]
    start = text.index("-- the caller's lease before anybody's is judged")
    middle = text.index("for _, dead in ipairs")
    end = text.index("if changed then\n  announce()", middle)
    scripts["sync"] = text[:start] + text[middle:end] + text[start:middle] + text[end:]


@rule(removed=reap_first)
def test_a_late_heartbeat_renews_its_own_lease_before_anybodys_is_judged(stage: Stage) -> None:
    one, _ = stage.team(2)
    stage.lease_runs_out(one)
    one.sync()
    assert stage.members() == {"0", "1"}


@rule(removed=without("sync", "  depart(dead, 'lost')\n  changed = true", "  changed = true"))
def test_who_waits_removes_the_dead_and_is_admitted_by_it(stage: Stage) -> None:
    alive, dead = stage.team(2)
    alive.tick()
    stage.lease_runs_out(dead)
    assert alive.sync().admits(1)
    assert stage.members() == {"0"}
    assert stage.log()[-1] == f"l:1:{dead.incarnation}:0:-:lost"
    assert refused(dead.tick) == -3


@rule(removed=without("sync", "if changed then\n  announce()", "if false then\n  announce()"))
def test_all_who_wait_are_told_when_the_dead_are_removed(stage: Stage) -> None:
    one, _, dead = stage.team(3)
    one.tick()
    stage.lease_runs_out(dead)
    stage.heard()
    stage.observe()
    assert stage.news().membership == int(stage.config("membership"))


@rule(removed=without("sync", "if gap > lease / 2 or gap < 0 then", "if gap < 0 then"))
def test_a_server_that_was_frozen_evicts_nobody_for_it(stage: Stage) -> None:
    one, _ = stage.team(2)
    stage.silence()
    one.sync()
    assert stage.members() == {"0", "1"}


@rule(removed=without("sync", "if gap > lease / 2 or gap < 0 then", "if gap > lease / 2 then"))
def test_leases_do_not_outlive_a_clock_that_runs_backwards(stage: Stage) -> None:
    """After a failover to a slow clock every lease would end in the far future."""
    one, two = stage.team(2)
    hour = 3_600_000
    for worker in ("0", "1"):
        stage.client.zincrby(stage.key("leases"), hour, worker)
    stage.client.hincrby(stage.key("config"), "time", hour)
    one.sync()
    seconds, microseconds = stage.client.time()
    assert stage.client.zscore(stage.key("leases"), two.worker) <= seconds * 1000 + microseconds / 1000 + 10_000


@rule(removed=without("sync", "leases[i + 1], leases[i]) == 1", "leases[i + 1], leases[i]) >= 0"))
def test_a_slow_caller_does_not_keep_the_dead_alive(stage: Stage) -> None:
    one, dead = stage.team(2)
    stage.silence()
    one.sync()
    stage.silence()
    one.sync()
    assert stage.members() == {"0"}
    assert refused(dead.sync) == -3


@rule(removed=without("sync", "'NX', leases", "leases"))
def test_when_a_member_was_heard_of_last_is_known_however_often_somebody_looks(stage: Stage) -> None:
    stage.team(1)
    stage.silence()
    for _ in range(2):
        stage.observe()
        assert stage.client.zscore(stage.key("graced"), "0") == 1
        stage.client.hincrby(stage.key("config"), "time", -6000)


@rule(removed=without("sync", "lease), worker)\n  redis.call('ZREM', GRACED, worker)\n", "lease), worker)\n"))
def test_who_speaks_again_is_spared_the_next_silence_too(stage: Stage) -> None:
    one, two = stage.team(2)
    for _ in range(3):
        stage.silence()
        one.sync()
        two.sync()
    assert stage.members() == {"0", "1"}


@rule(removed=without("sync", FENCE, NO_FENCE))
def test_a_heartbeat_of_an_evicted_worker_does_not_revive_it(stage: Stage) -> None:
    one, _ = stage.team(2)
    one.evict()
    before = stage.everything()
    assert refused(one.sync) == -3
    assert stage.everything() == before


# -- patience ----------------------------------------------------------------------------------------------------------

#: Milliseconds for which the blocked wait for who does not tick.
PATIENCE = 4000
ANYBODY = without("sync", "<= tonumber(newest)", "<= math.huge")


@rule(removed=without("sync", "        depart(holder, 'evicted')\n"))
def test_who_stands_at_the_min_for_long_is_evicted_by_the_blocked(stage: Stage) -> None:
    stuck, ahead = stage.team(2)
    ahead.tick()
    assert not ahead.sync(PATIENCE).admits(1)
    stage.stands_still(PATIENCE - 1000)
    assert not ahead.sync(PATIENCE).admits(1)
    stage.stands_still(1000)
    assert ahead.sync(PATIENCE).admits(1)
    assert stage.log()[-1] == f"l:0:{stuck.incarnation}:0:-:evicted"
    assert refused(stuck.tick) == -3


@rule(removed=without("sync", "stored - lowest() > bound\n", "lowest() >= 0\n"))
def test_nobody_is_evicted_for_whom_nobody_waits(stage: Stage) -> None:
    _, ahead = stage.team(2, staleness=1)
    ahead.tick()
    ahead.sync(PATIENCE)
    assert stage.config("still") == ""


@rule(removed=without("sync", "local known = at == low", "local known = at"))
def test_the_time_begins_anew_when_the_min_moves(stage: Stage) -> None:
    slow, ahead = stage.team(2)
    ahead.tick()
    ahead.tick()
    ahead.sync(PATIENCE)
    stage.stands_still(PATIENCE)
    slow.tick()
    ahead.sync(PATIENCE)
    assert stage.members() == {"0", "1"}


@rule(removed=ANYBODY)
def test_a_newcomer_is_not_evicted_for_the_time_of_another(stage: Stage) -> None:
    _, ahead = stage.team(2)
    ahead.tick()
    ahead.sync(PATIENCE)
    new = stage.join(2)
    stage.stands_still(PATIENCE)
    ahead.sync(PATIENCE)
    assert stage.members() == {"1", "2"}
    new.tick()
    assert ahead.sync().admits(1)


@rule(removed=ANYBODY)
def test_who_is_restarted_under_its_id_has_a_time_of_its_own(stage: Stage) -> None:
    _, ahead = stage.team(2)
    ahead.tick()
    ahead.sync(PATIENCE)
    again = stage.join(0)
    stage.stands_still(PATIENCE)
    ahead.sync(PATIENCE)
    assert stage.members() == {"0", "1"}
    stage.stands_still(PATIENCE)
    ahead.sync(PATIENCE)
    assert stage.members() == {"1"}
    assert refused(again.tick) == -3


@rule(removed=ANYBODY)
def test_a_new_run_has_nothing_of_the_time_of_the_one_before(stage: Stage) -> None:
    _, ahead = stage.team(2)
    ahead.tick()
    ahead.sync(PATIENCE)
    stage.stands_still(PATIENCE)
    ahead.leave()
    stage.call("leave", ahead.run, 1, "0", stage.process(0).known, 0, "left")
    ahead = stage.process(1)
    ahead.known = 0
    ahead.join(name="2")
    for worker in (0, 2):
        stage.join(worker)
    ahead.tick()
    ahead.sync(PATIENCE)
    assert stage.members() == {"0", "1", "2"}


@rule(removed=without("sync", "tonumber(ARGV[12] or '') or tonumber(staleness)", "tonumber(staleness)"))
def test_in_a_barrier_any_lead_blocks(stage: Stage) -> None:
    for staleness in (3, -1):
        _, ahead = stage.team(2, staleness)
        ahead.tick()
        ahead.sync(PATIENCE, 0)
        stage.stands_still(PATIENCE)
        ahead.sync(PATIENCE, 0)
        assert stage.members() == {"1"}
        ahead.leave()
        stage.client.delete(*map(stage.key, CONTROL))


@rule(removed=without("sync", "  following = due\n"))
def test_the_blocked_are_told_when_the_time_is_up(stage: Stage) -> None:
    _, ahead = stage.team(2)
    ahead.tick()
    assert int(ahead.sync(PATIENCE).rest[1]) == PATIENCE
    stage.stands_still(PATIENCE - 1000)
    assert int(ahead.sync(PATIENCE).rest[1]) <= 1000
    assert int(ahead.sync().rest[1]) > PATIENCE, "who is not tired hears of leases alone"


@rule(removed=without("sync", "  redis.call('HDEL', CONFIG, 'still')\n  local leases", "  local leases"))
def test_a_silence_of_the_server_is_nobodys_time(stage: Stage) -> None:
    other, ahead = stage.team(2)
    ahead.tick()
    ahead.sync(PATIENCE)
    stage.stands_still(PATIENCE)
    stage.silence()
    other.sync()
    ahead.sync(PATIENCE)
    assert stage.members() == {"0", "1"}


@rule(removed=without("sync", "    redis.call('HDEL', CONFIG, 'still')  -- members may have fallen back to the min\n"))
def test_who_fell_back_to_the_min_with_the_server_has_not_stood_there(stage: Stage) -> None:
    _, other, ahead = stage.team(3)
    ahead.tick()
    ahead.sync(PATIENCE)
    stage.stands_still(PATIENCE)
    fall_back = stage.backup()
    other.tick()
    ahead.tick()
    fall_back()
    ahead.sync(PATIENCE)
    ahead.sync(PATIENCE)
    assert stage.members() == {"0", "1", "2"}
    other.sync()
    assert stage.clocks() == {"0": 0, "1": 1, "2": 2}


# -- leaving -----------------------------------------------------------------------------------------------------------


@rule(removed=without("leave", "  announce()\n"))
def test_an_eviction_frees_the_others_and_they_are_told(stage: Stage) -> None:
    fast, slow = stage.team(2)
    fast.tick()
    stage.heard()
    slow.evict()
    assert stage.news().admits(1)


@rule(removed=without("leave", FENCE, f"{FENCE}\nif string.sub(refused or '', 1, 2) == '-2' then refused = nil end"))
def test_an_eviction_means_one_incarnation_and_not_its_successor(stage: Stage) -> None:
    old = stage.join(0)
    new = stage.join(0)
    assert refused(old.evict) == -2
    assert stage.members() == {"0"}
    new.tick()


@rule(removed=without("leave", "if refused and string.sub(refused, 1, 2) ~= '-3' then", "if refused then"))
def test_leaving_twice_succeeds(stage: Stage) -> None:
    one, _ = stage.team(2)
    one.leave()
    before = stage.everything()
    one.leave()
    assert stage.everything() == before


@rule(removed=without("leave", "append(table.concat({'l'", "local _ = (table.concat({'l'"))
def test_a_departure_stands_in_the_log_with_its_reason(stage: Stage) -> None:
    one, two = stage.team(2)
    one.tick()
    one.leave("done")
    two.evict()
    assert stage.log()[-2:] == [f"l:0:{one.incarnation}:1:-:done", f"l:1:{two.incarnation}:0:-:evicted"]


@rule(
    removed=without(
        "leave", "  raise_floor()\n  redis.call('ZREM', ORDER, worker)", "  redis.call('ZREM', ORDER, worker)"
    )
)
def test_the_min_of_a_job_without_members_is_the_highest_that_it_was(stage: Stage) -> None:
    (one,) = stage.team(1)
    one.tick()
    one.tick()
    one.leave("done")
    assert stage.observe().low == 2
    assert stage.join(5).clock == 2


@rule(removed=without("leave", "redis.call('PEXPIRE', KEYS[i], retain)", "local _ = retain"))
def test_a_job_without_members_expires(stage: Stage) -> None:
    one, two = stage.team(2)
    one.leave()
    assert stage.client.pttl(stage.key("config")) == -1
    two.leave()
    assert all(stage.client.pttl(stage.key(name)) > 0 for name in ("config", "clocks", "ids", "log"))


@rule(removed=without("join", "redis.call('PERSIST', KEYS[i])", "local _ = i"))
def test_a_return_takes_the_expiry_off_again(stage: Stage) -> None:
    stage.join(0).leave()
    stage.join(0)
    assert all(stage.client.pttl(stage.key(name)) == -1 for name in ("config", "clocks", "ids", "log"))


# -- configuring -------------------------------------------------------------------------------------------------------


@rule(removed=without("configure", "  announce()\n"))
def test_a_raised_staleness_wakes_whom_it_admits(stage: Stage) -> None:
    fast, _ = stage.team(2)
    fast.tick()
    stage.heard()
    stage.configure("staleness", 1)
    assert stage.news().admits(1)


@rule(removed=without("configure", "if (current[2] or '0') ~= ARGV[3] then", "if false then"))
def test_a_change_says_how_many_there_were_before(stage: Stage) -> None:
    stage.join(0, staleness=2)
    stage.configure("staleness", 4)
    with pytest.raises(Refused) as caught:
        stage.configure("staleness", 8)
    assert caught.value.words == ["1"]
    # said twice it succeeds
    stage.configure("staleness", 4)


@rule(removed=without("configure", "  redis.call('HINCRBY', CONFIG, 'changes', 1)\n"))
def test_a_late_duplicate_of_a_stop_that_was_taken_back_does_not_stop_again(stage: Stage) -> None:
    stage.join(0)
    stage.configure("stop", 1)
    stage.configure("stop", 0, changes=1)
    assert refused(stage.configure, "stop", 1) == -8
    assert stage.config("stop") == "0"


@rule(removed=without("configure", "    stop = ARGV[4]\n", "    local _ = stop\n"))
def test_a_stop_is_announced(stage: Stage) -> None:
    stage.join(0)
    stage.heard()
    stage.configure("stop", 1)
    assert stage.news().stopped


@rule(removed=without("configure", "    started = '0'\n"))
def test_a_job_that_nobody_is_in_gathers_anew(stage: Stage) -> None:
    first = stage.team(2)
    for worker in first:
        worker.tick()
    for worker in first:
        worker.leave("done")
    assert not stage.configure("workers", 3).started
    one = stage.join(0)
    assert not one.sync().started
    stage.join(1)
    assert stage.join(2).sync().started
    assert one.sync().low == 1


@rule(
    removed=without("configure", "  elseif gather and redis.call('ZCARD', ORDER) > 0 then\n", "  elseif false then\n")
)
def test_members_at_work_are_not_made_to_wait_for_a_quorum(stage: Stage) -> None:
    stage.team(2)
    assert refused(stage.configure, "workers", 3) == -12
    assert stage.config("workers") == "2" and stage.config("started") == "1"


# -- a server that forgot ----------------------------------------------------------------------------------------------


@rule(
    removed=without(
        "sync",
        "  if rolled or ahead then\n",
        "  if rolled then\n    redis.call('HSET', CLOCKS, worker, math.max(stored, clock))\n  end\n  if false then\n",
    )
)
def test_lost_ticks_begin_an_epoch_and_are_named_in_the_log(stage: Stage) -> None:
    (one,) = stage.team(1)
    one.tick()
    fall_back = stage.backup()
    one.tick()
    one.tick()
    fall_back()
    answer = one.sync()
    assert (answer.epoch, answer.clock) == (2, 3)
    assert answer.rest[2] == "2:1", "its deltas from clock 1 on are lost"
    assert stage.log()[-1] == f"r:0:{one.incarnation}:3:-:1"
    assert stage.news().epoch == 2
    one.tick()
    assert stage.clocks() == {"0": 4}


@rule(
    removed=both(
        without("tick", "if stored < clock or epoch ~= ARGV[2] then", "if epoch ~= ARGV[2] then"),
        without("tick", "if stored ~= clock then", "if false then"),
    )
)
def test_a_tick_on_a_store_that_is_behind_is_sent_to_sync(stage: Stage) -> None:
    (one,) = stage.team(1)
    fall_back = stage.backup()
    one.tick()
    fall_back()
    one.clock -= 1
    one.tick()  # what it knows is there
    fall_back()
    assert refused(one.tick) == -4


@rule(removed=without("sync", "local rolled = stored < clock or", "local rolled = false or"))
def test_a_worker_that_only_waits_notices_too(stage: Stage) -> None:
    waiting, slow = stage.team(2)
    fall_back = stage.backup()
    waiting.tick()
    fall_back()
    slow.tick()  # the log is as long as it was
    waiting.position, waiting.tag = 0, stage.log()[0]
    assert waiting.sync().epoch == 2
    assert stage.clocks() == {"0": 1, "1": 1}


@rule(removed=without("sync", "rolled = position >= length or", "rolled = false and"))
def test_a_lost_tail_of_the_log_is_noticed_by_who_has_seen_it(stage: Stage) -> None:
    one, two = stage.team(2, staleness=3)
    two.tick()
    one.sync()
    stage.client.rpop(stage.key("log"))
    assert one.sync().epoch == 2


@rule(removed=without("sync", "redis.call('LINDEX', LOG, position - length) ~= ARGV[7]", "false"))
def test_another_past_of_the_same_length_is_noticed(stage: Stage) -> None:
    one, two = stage.team(2, staleness=3)
    fall_back = stage.backup()
    two.tick()
    one.sync()
    fall_back()
    stage.join(2)
    assert one.sync().epoch == 2


@rule(removed=without("sync", "or holder < incarnation", "or false"))
def test_a_join_that_was_lost_is_restored(stage: Stage) -> None:
    one = stage.join(0, workers=1)
    fall_back = stage.backup()
    again = stage.join(0)
    fall_back()
    again.position = -1
    assert again.sync().epoch == 2
    again.tick()
    assert refused(one.tick) == -2


@rule(removed=without("sync", "if not behind or math.max(stored, clock) < lowest() then", "if true then"))
def test_one_loss_begins_one_epoch_however_many_find_it(stage: Stage) -> None:
    one, two = stage.team(2)
    fall_back = stage.backup()
    one.tick()
    two.tick()
    fall_back()
    assert [one.sync().epoch, two.sync().epoch, one.sync().epoch] == [2, 2, 2]
    assert stage.clocks() == {"0": 1, "1": 1}


@rule(removed=without("sync", "if not behind or math.max(stored, clock) < lowest() then", "if not behind then"))
def test_the_min_falls_in_no_epoch_not_even_when_the_slowest_is_restored_last(stage: Stage) -> None:
    fast = stage.join(0, workers=2, staleness=1)
    slow = stage.process(1)
    fall_back = stage.backup()
    slow.join()
    fast.tick()
    fall_back()
    first = fast.sync()
    second = slow.sync()
    assert second.low >= first.low or second.epoch > first.epoch


@rule(removed=without("sync", "redis.call('HSET', CONFIG, 'started', '1')", "started = '0'"))
def test_a_rollback_to_before_the_quorum_does_not_forget_the_start(stage: Stage) -> None:
    one = stage.join(0, workers=2)
    two = stage.process(1)
    fall_back = stage.backup()
    two.join()
    fall_back()
    two.sync()
    assert one.sync().started


@rule(removed=without("sync", "redis.call('PERSIST', KEYS[i])", "local _ = i"))
def test_a_job_with_restored_members_does_not_expire(stage: Stage) -> None:
    stage.join(0).leave()
    fall_back = stage.backup()
    again = stage.join(0)
    fall_back()
    for name in ("config", "clocks", "ids", "log"):
        stage.client.pexpire(stage.key(name), 100_000)
    again.sync()
    assert stage.client.pttl(stage.key("config")) == -1


@rule(
    removed=without(
        "sync", "if holder == incarnation and at and tonumber(at) > tonumber(ARGV[2]) then", "if false then"
    )
)
def test_two_losses_before_the_worker_looks_are_told_as_one(stage: Stage) -> None:
    """A heartbeat found the first, and the worker has not heard of it yet."""
    (one,) = stage.team(1)
    fall_back = stage.backup()
    one.tick()
    one.tick()
    fall_back()
    known, position, tag = one.epoch, one.position, one.tag
    one.sync()
    one.epoch, one.position, one.tag = known, position, tag
    later = stage.client.hget(stage.key("ids"), "0").decode().split(" ")[-1]
    assert later == "2:0"
    stage.client.hset(stage.key("clocks"), "0", 1)  # the second takes less
    stage.client.zadd(stage.key("order"), {"0": 1})
    assert one.sync().rest[2].endswith(":0")

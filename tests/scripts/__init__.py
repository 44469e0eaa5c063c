"""One test for each rule of the control scripts and of the clock's client; each fails when its rule is taken out."""

package perf

import "github.com/goucx/goucx/perf/rte"

// openCountedSend sets up two verbs devices.
func openCountedSend(cfg Config) (run func(n int) error, closeAll func() error, err error) {
	p := Defaults()
	p.Test = "verbs_send_lat"
	t, err := Lookup(p.Test)
	if err != nil {
		return nil, nil, err
	}
	a, b, err := openSides(&cfg, newLink(&Config{}, rte.Loop{}), &p, t)
	if err != nil {
		return nil, nil, err
	}
	k := newVerbsBoth(a, b).(*verbsBoth[*verbsSend])
	return func(n int) error { return countSend(k.a, k.b, n) }, k.close, nil
}

// countSend sends messages from a and b in turn.
//
//go:noinline
func countSend(a, b *verbsSend, n int) error {
	for range n / 2 {
		if err := a.hop(b, 1); err != nil {
			return err
		}
		if err := b.hop(a, 0); err != nil {
			return err
		}
	}
	return nil
}

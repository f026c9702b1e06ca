package soft

import "github.com/goucx/goucx/ucs"

// tick and progress run all engines of a device.
func (d *device) tick(now ucs.Time) {
	for _, e := range *d.engines.Load() {
		e.tick(now)
	}
}

func (d *device) progress() (n int) {
	for _, e := range *d.engines.Load() {
		n += e.progress()
	}
	return n
}

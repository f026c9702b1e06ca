package perf

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/perf/rte"
	"github.com/goucx/goucx/transports"
)

// bounded is a loopback group that fails after a time, so that a loop that waits
// for itself fails its test instead of hanging it.
type bounded struct {
	rte.Loop
	until time.Time
}

var errTooLong = errors.New("the run has not ended in time")

func (g bounded) Err() error {
	if time.Now().After(g.until) {
		return errTooLong
	}
	return nil
}

// In loopback one thread is sender and receiver. No loop may wait for the end of a
// send whose receive it has not posted yet: a send by rendezvous, and a sync send,
// would never end.
func TestLoopbackByRendezvous(t *testing.T) {
	for _, tl := range []string{"self", "shm", "rc", "ud"} {
		for _, test := range []string{"tag_lat", "tag_bw", "tag_sync_lat", "tag_sync_bw", "ucp_am_lat", "ucp_am_bw"} {
			for form, set := range map[string]func(*Params){
				"plain":      func(*Params) {},
				"unexpected": func(p *Params) { p.Unexpected = true },
				"registered": func(p *Params) { p.Registered = true },
				"asleep":     func(p *Params) { p.Sleep = true },
				"window 1":   func(p *Params) { p.Window = 1 },
				"validate":   func(p *Params) { p.Validate = true },
			} {
				p := Defaults()
				p.Test, p.Sizes, p.Iterations = test, []int64{8}, 10
				set(&p)
				if p.Check() != nil {
					continue // streams are not validated
				}
				t.Run(fmt.Sprintf("%s/%s/%s", tl, test, form), func(t *testing.T) {
					t.Setenv("UCX_TLS", tl)
					t.Setenv("UCX_RNDV_THRESH", "1")
					r, err := Run(Config{Providers: transports.All()}, bounded{until: time.Now().Add(20 * time.Second)}, p)
					require.NoError(t, err)
					assert.Equal(t, p.Iterations, r.Last.Iterations)
				})
			}
		}
	}
}

package ucttest

import "github.com/goucx/goucx/uct"

// failureHook changes what is told of failures.
type failureHook struct {
	uct.Handler
	tell func(h uct.Handler, f uct.Failure)
}

func (h failureHook) HandleFailure(f uct.Failure) { h.tell(h.Handler, f) }

func telling(f func(h uct.Handler, f uct.Failure)) wraps {
	return onHandler(func(h uct.Handler) uct.Handler { return failureHook{h, f} })
}

type endsTogether struct {
	uct.Endpoint
	ended *bool
}

func (e endsTogether) AMUint64(id uct.AMID, hdr, v uint64) uct.Status {
	if *e.ended {
		e.Close()
	}
	return e.Endpoint.AMUint64(id, hdr, v)
}

// failureMutants are planted in a transport whose ifaces reach others.
var failureMutants = []mutant{
	{"end of a side told twice", "failure/one-side", telling(func(h uct.Handler, f uct.Failure) {
		h.HandleFailure(f)
		h.HandleFailure(f)
	})},
	{"end of a side not told", "failure/one-side", telling(func(h uct.Handler, f uct.Failure) {
		if f.Endpoint != nil {
			h.HandleFailure(f)
		}
	})},
	{"end of a side without its source", "failure/one-side", telling(func(h uct.Handler, f uct.Failure) {
		f.RxConn = 0
		h.HandleFailure(f)
	})},
	{"endpoint ends with the peer's side", "failure/one-side", func() wraps {
		var ended bool
		w := telling(func(h uct.Handler, f uct.Failure) {
			ended = true
			h.HandleFailure(f)
		})
		w.endpoint = func(e uct.Endpoint) uct.Endpoint { return endsTogether{e, &ended} }
		return w
	}()},
	{"disconnect ends nothing", "failure/disconnect", onIface(func(i uct.Iface) uct.Iface { return never{i} })},
}

// never is an iface that ends no connection when asked to.
type never struct{ uct.Iface }

func (never) Disconnect(uint32) {}

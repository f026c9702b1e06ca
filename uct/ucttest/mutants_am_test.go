package ucttest

import (
	"slices"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// onHandler and onEndpoint make the wraps of one fault.
func onHandler(f func(uct.Handler) uct.Handler) wraps { return wraps{handler: f} }

func onEndpoint(f func(uct.Endpoint) uct.Endpoint) wraps { return wraps{endpoint: f} }

func onIface(f func(uct.Iface) uct.Iface) wraps { return wraps{iface: f} }

func onDomain(f func(uct.Domain) uct.Domain) wraps { return wraps{domain: f} }

// amHook changes batches on their way to the handler.
type amHook struct {
	uct.Handler
	change func(mem []byte, ds []uct.Desc) []uct.Desc
}

func (h amHook) HandleAM(mem []byte, ds []uct.Desc) uint64 {
	own := append([]uct.Desc(nil), ds...)
	for part := range slices.Chunk(h.change(mem, own), uct.MaxBatch) {
		h.Handler.HandleAM(mem, part)
	}
	return 0
}

func changing(f func(mem []byte, ds []uct.Desc) []uct.Desc) wraps {
	return onHandler(func(h uct.Handler) uct.Handler { return amHook{h, f} })
}

// each changes every message.
func each(f func(mem []byte, d *uct.Desc)) wraps {
	return changing(func(mem []byte, ds []uct.Desc) []uct.Desc {
		for i := range ds {
			f(mem, &ds[i])
		}
		return ds
	})
}

type (
	keepsBuffer struct {
		uct.Endpoint
		last *[]byte
	}
	commitsAll struct {
		uct.Endpoint
		n int
	}
	abortSends   struct{ uct.Endpoint }
	truncates    struct{ uct.Endpoint }
	dropsOnClose struct{ uct.Endpoint }
	openForever  struct{ uct.Endpoint }
	panicsTwice  struct {
		uct.Endpoint
		closed bool
	}
	leavesHead struct{ uct.Endpoint }
)

func (e *keepsBuffer) AMShort(id uct.AMID, hdr uint64, p []byte) uct.Status {
	*e.last = p
	return e.Endpoint.AMShort(id, hdr, p)
}

func (e *commitsAll) ReserveAM(id uct.AMID, hdr uint64, n int) ([]byte, uct.Status) {
	e.n = n
	return e.Endpoint.ReserveAM(id, hdr, n)
}

func (e *commitsAll) CommitAM(int) { e.Endpoint.CommitAM(e.n) }

func (e abortSends) Abort() { e.CommitAM(0) }

func (e truncates) AMShort(id uct.AMID, hdr uint64, p []byte) uct.Status {
	return e.Endpoint.AMShort(id, hdr, p[:min(len(p), 1000)])
}

func (e dropsOnClose) AMShort(uct.AMID, uint64, []byte) uct.Status { return ucs.OK }

func (e openForever) Close() {}

func (e *panicsTwice) Close() {
	if e.closed {
		panic("closed twice")
	}
	e.closed = true
	e.Endpoint.Close()
}

func (e leavesHead) AMZcopy(id uct.AMID, hdr uint64, _ []byte, v []uct.Vec, t uct.Token) uct.Status {
	return e.Endpoint.AMZcopy(id, hdr, nil, v, t)
}

// reentrant delivers from inside a send.
type reentrant struct {
	uct.Iface
}

type reentrantEndpoint struct {
	uct.Endpoint
	i uct.Iface
}

func (i reentrant) NewEndpoint(a uct.Address) (uct.Endpoint, error) {
	e, err := i.Iface.NewEndpoint(a)
	return reentrantEndpoint{e, i.Iface}, err
}

func (e reentrantEndpoint) AMUint64(id uct.AMID, hdr, v uint64) uct.Status {
	st := e.Endpoint.AMUint64(id, hdr, v)
	e.i.Progress(1)
	return st
}

// miscounts answers one more.
type miscounts struct{ uct.Iface }

func (i miscounts) Progress(budget int) int { return i.Iface.Progress(budget) + 1 }

// greedy takes no notice of the budget.
type greedy struct{ uct.Iface }

func (i greedy) Progress(int) int { return i.Iface.Progress(1 << 20) }

var amMutants = []mutant{
	{"header lost", "am/short", each(func(_ []byte, d *uct.Desc) { d.Header = 0 })},
	{"id changed", "am/ids", each(func(_ []byte, d *uct.Desc) { d.ID &= 15 })},
	{"source 0", "am/uint64", each(func(_ []byte, d *uct.Desc) { d.RxConn = 0 })},
	{"source changes", "am/source", func() wraps {
		n := uint32(0)
		return each(func(_ []byte, d *uct.Desc) { n++; d.RxConn = n })
	}()},
	{"payload damaged", "am/bcopy", each(func(mem []byte, d *uct.Desc) {
		if d.Len > 4096 {
			mem[d.Off+4096] ^= 1
		}
	})},
	{"one byte short", "am/zcopy", each(func(_ []byte, d *uct.Desc) { d.Len -= min(d.Len, 1) })},
	{"descriptor outside its memory", "am/short", each(func(mem []byte, d *uct.Desc) { d.Off = uint32(len(mem)) })},
	{"order within a batch", "order/mixed-forms", changing(func(_ []byte, ds []uct.Desc) []uct.Desc {
		if len(ds) > 3 {
			ds[1], ds[2] = ds[2], ds[1]
		}
		return ds
	})},
	{"message lost", "order/two-endpoints", func() wraps {
		n := 0
		return changing(func(_ []byte, ds []uct.Desc) []uct.Desc {
			if n += len(ds); n > 500 {
				n = 0
				return ds[1:]
			}
			return ds
		})
	}()},
	{"message twice", "order/mixed-forms", func() wraps {
		n := 0
		return changing(func(_ []byte, ds []uct.Desc) []uct.Desc {
			if n += len(ds); n > 2000 {
				n = 0
				return append(ds, ds[len(ds)-1])
			}
			return ds
		})
	}()},
	{"buffer kept", "am/buffer-reuse", func() wraps {
		var last []byte
		w := onEndpoint(func(e uct.Endpoint) uct.Endpoint { return &keepsBuffer{e, &last} })
		w.handler = each(func(mem []byte, d *uct.Desc) {
			if len(last) == int(d.Len) {
				copy(mem[d.Off:], last)
			}
		}).handler
		return w
	}()},
	{"commit of all", "am/bcopy-fewer", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return &commitsAll{e, 0} })},
	{"abort sends", "am/bcopy-abort", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return abortSends{e} })},
	{"too long cut", "am/too-long", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return truncates{e} })},
	{"head lost", "am/zcopy-pieces", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return leavesHead{e} })},
	{"send lost", "am/short", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return dropsOnClose{e} })},
	{"close ignored", "close/endpoint", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return openForever{e} })},
	{"close panics", "close/endpoint", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return &panicsTwice{e, false} })},
	{"callback inside a send", "am/ids", onIface(func(i uct.Iface) uct.Iface { return reentrant{i} })},
	{"result of progress", "progress/idle", onIface(func(i uct.Iface) uct.Iface { return miscounts{i} })},
	{"budget", "progress/budget", onIface(func(i uct.Iface) uct.Iface { return greedy{i} })},
}

package ucp

import "github.com/goucx/goucx/ucs"

// TagSendSync is TagSend, but its request completes only after a receive has matched the
// message. ErrRejected: the receiver dropped the message, or its worker closed.
//
//hot:bench BenchmarkTagSync
func (e Endpoint) TagSendSync(p []byte, tag Tag) Request {
	t := e.thread()
	t.lock()
	r := t.w.tagSend(e, sendParams{op: opTagSendSync, buf: p, tag: tag, n: len(p), flags: sendFlagSync})
	t.unlock()
	return r
}

// TagSendWith is TagSend with options. ForceEager sends p eagerly even if it is longer than
// UCX_RNDV_THRESH, unless the receiver's credit for unexpected messages is exhausted.
// ForceRendezvous uses rendezvous however short p is.
func (e Endpoint) TagSendWith(p []byte, tag Tag, o Opts) Request {
	if st := o.Flags.check(); st != ucs.OK {
		return e.thread().refuse(opTagSend, e, st)
	}
	var flags uint32
	switch {
	case o.Flags&ForceRendezvous != 0:
		flags = sendFlagRndv
	case o.Flags&ForceEager != 0:
		flags = sendFlagEager
	default:
		return e.TagSend(p, tag)
	}
	t := e.thread()
	t.lock()
	defer t.unlock()
	return t.w.tagSend(e, sendParams{op: opTagSend, buf: p, tag: tag, n: len(p), flags: flags})
}

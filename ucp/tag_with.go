package ucp

import "github.com/goucx/goucx/ucs"

// TagSendSync is TagSend whose request ends only after the message was matched
// by a receive. ErrRejected: the receiver took it and dropped it, or closed.
// hot: BenchmarkTagSync
func (e Endpoint) TagSendSync(p []byte, tag Tag) Request {
	t := e.thread()
	t.lock()
	r := t.w.tagSend(e, sending{op: opTagSendSync, buf: p, tag: tag, n: len(p), wishes: wishSync})
	t.unlock()
	return r
}

// TagSendWith is TagSend with wishes. ForceEager sends p along even where it is
// longer than UCX_RNDV_THRESH, unless the receiver's budget for unexpected
// messages is spent; ForceRendezvous has it asked for, however short it is.
func (e Endpoint) TagSendWith(p []byte, tag Tag, o Opts) Request {
	if st := o.Flags.check(); st != ucs.OK {
		return e.thread().refuse(opTagSend, e, st)
	}
	var wishes uint32
	switch {
	case o.Flags&ForceRendezvous != 0:
		wishes = wishRndv
	case o.Flags&ForceEager != 0:
		wishes = wishEager
	default:
		return e.TagSend(p, tag)
	}
	t := e.thread()
	t.lock()
	defer t.unlock()
	return t.w.tagSend(e, sending{op: opTagSend, buf: p, tag: tag, n: len(p), wishes: wishes})
}

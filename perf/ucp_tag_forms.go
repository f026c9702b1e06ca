package perf

import "github.com/goucx/goucx/ucp"

// The loops of tag tests other than a plain send with a preposted receive.

// echoSync waits for each send to complete before the next one. It completes with the other side's
// receive, which is posted before the other side replies.
//
//hot:bench BenchmarkRun/tag_sync_lat
//go:noinline
func (k *ucpTag) echoSync(n int64, st *stamps) error {
	w, ep, in, out, mask, l := k.w, k.ep, k.in, k.buf, k.mask, k.link
	for range n {
		if _, err := w.TagRecv(in, tagData, mask).Wait(l); err != nil {
			return err
		}
		if err := k.sent.Wait(l); err != nil {
			return err
		}
		k.sent = ep.TagSendSync(out, tagData)
		st.tick()
	}
	return nil
}

//
//hot:bench BenchmarkRun/tag_sync_bw
//go:noinline
func (k *ucpTag) burstSync(n int) error {
	ep, out := k.ep, k.buf
	for range n {
		if r := ep.TagSendSync(out, tagData); r != (ucp.Request{}) {
			if err := k.enqueue(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// receiveUnexpected is the receiving side of a stream that posts each receive after its message
// has arrived.
//
//go:noinline
func (k *ucpTag) receiveUnexpected(n int64) error {
	for range n {
		if err := k.receive(); err != nil {
			return err
		}
	}
	return nil
}

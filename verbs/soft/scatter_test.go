package soft

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBackToAnswers: answers that the socket did not take are given again from
// where they were, each at its own place, however few a peer may have under way.
func TestBackToAnswers(t *testing.T) {
	a, _ := pair(t, New(Config{Link: LinkInproc, Engine: EngineInline}), 64)
	q := a.qp.(*qp)
	q.acquire()
	defer q.transmitAndRelease()
	r := &q.rsp
	defer func(was responder) { *r = was }(*r)
	sent := func() (all []uint32) {
		for i := range 5 {
			all = append(all, r.saved[i].sent)
		}
		return all
	}
	// 1 comes again from its packet 2 on and is at 7, 2 has been answered, 3 and 4 have
	// not; 4 comes again from its packet 5 on.
	r.maxSaved, r.numSaved, r.pendingResponses = 5, 5, 0b11010
	for i := range 5 {
		r.saved[i] = savedRequest{npk: 9, sent: 9}
	}
	r.saved[1].firstSent, r.saved[1].sent, r.saved[3].sent, r.saved[4].firstSent, r.saved[4].sent = 2, 7, 0, 5, 5
	was := sent()
	at := q.saveSendState()
	r.pendingResponses, r.saved[1].sent, r.saved[3].sent, r.saved[4].sent = 0b10000, 9, 9, 6
	q.restoreSendState(&at, 0)
	require.Equal(t, uint16(0b11010), r.pendingResponses)
	require.Equal(t, was, sent())
}

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
	q.wait()
	defer q.leave()
	r := &q.rsp
	defer func(was responder) { *r = was }(*r)
	r.max, r.keptN, r.replyN = 2, 5, 3
	r.kept[3].sent, r.kept[4].sent = 7, 0
	at := q.here()
	r.replyN, r.kept[3].sent, r.kept[4].sent = 4, 9, 2
	q.backTo(&at, 0)
	require.Equal(t, []uint32{3, 7, 0}, []uint32{r.replyN, r.kept[3].sent, r.kept[4].sent})
}

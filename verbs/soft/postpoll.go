package soft

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// PostSendPoll implements verbs.PostPoller. It saves nothing over the two calls.
func (q *qp) PostSendPoll(wrs []verbs.SendWR, c verbs.CQ, wcs []verbs.WC) (posted int, st ucs.Status, polled int) {
	posted, st = q.PostSend(wrs)
	return posted, st, c.Poll(wcs)
}

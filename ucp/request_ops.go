package ucp

import (
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
)

// operation describes how an operation is carried out. It serves the slow paths: what runs for each
// packet, and short completions, call the functions themselves. docs/requests.md has the
// states of each operation. A nil function means that there is nothing to do.
type operation struct {
	// progress starts or continues the operation in slot i. It returns OK if the operation is
	// complete. InProgress: an event or a message will complete it. NoResource: it has to
	// wait on the lane's pending queue. Busy: it moved to the end of that queue. Any other
	// status is the operation's result.
	progress func(w *thread, i uint32) ucs.Status
	// complete releases what the operation in slot i, which completes with st, holds beside the
	// slot. If it returns true it has released the slot too, and nothing else is notified.
	complete func(w *thread, i uint32, st ucs.Status) bool
	// cancel cancels the operation in slot i, whatever the peer does.
	cancel func(w *thread, i uint32)
}

// operations has the descriptor of each kind. Code reaches it by thread.operations, because the
// functions of the descriptors look other descriptors up: a direct reference would be an
// initialization cycle.
var operations = [request.NumKinds]operation{
	request.TagSend:       tagSendOperation,
	request.TagSendUint64: tagSendOperation,
	request.TagSendV:      tagSendOperation,
	request.TagSendSync:   tagSendOperation,
	request.AMSend:        amSendOperation,
	request.TagRecv:       recvOperation,
	request.AMRecv:        recvOperation,
	request.AMFetch:       prefetchOperation,
	request.Flush:         flushOperation,
	request.Fence:         fenceOperation,
	request.CancelFrag:    cancelFragOperation,
	request.Control:       controlOperation,
	request.Put:           transferOperation,
	request.Get:           transferOperation,
	request.PutUint64:     wordOperation,
	request.GetUint64:     wordOperation,
	request.Atomic:        wordOperation,
	request.Fetch:         wordOperation,
	request.RndvRead:      readOperation,
	request.DrainLane:     drainOperation,
}

package uct

import "github.com/goucx/goucx/ucs/ring"

// PollWord shows, without a call, whether an Iface has work.
//
// While Next is not ready, Progress of the iface would find no message. The user may then count its
// pass instead of calling Progress. After MaxPasses of them it stores their number in Passes and
// calls Progress, because the iface also has work that no message announces.
//
// The iface changes Next in calls of its methods and those of its endpoints, never at another time.
// Next is never nil, and its memory is valid until the next such call.
type PollWord struct {
	Next   *ring.Position
	Passes uint32
}

// MaxPasses is the maximum number of passes without a call of Progress.
const MaxPasses = 64

// WordPoller is an Iface that has a PollWord, always the same one.
type WordPoller interface{ PollWord() *PollWord }

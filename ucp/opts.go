package ucp

import "github.com/goucx/goucx/ucs"

// Opts are rare options of one operation. The zero Opts sets none.
type Opts struct {
	// Mem is the registration that covers the buffer. It saves looking it up.
	Mem *MemHandle
	// Flags are options without a value.
	Flags Flags
}

// Flags is a set of options. An operation ignores those that it has no use for.
type Flags uint32

// Flags of messages.
const (
	// ForceEager sends the data eagerly, however long it is.
	ForceEager Flags = 1 << iota
	// ForceRendezvous sends the data by rendezvous, however short it is: the receiver
	// requests it after an RTS. Together with ForceEager it is ErrInvalid.
	ForceRendezvous
	// WantReply allows the receiver of an active message to reply through AM.From.
	WantReply
)

const (
	allFlags  = ForceEager | ForceRendezvous | WantReply
	bothForms = ForceEager | ForceRendezvous
)

// check returns OK if f is valid, else the status of the refusal.
func (f Flags) check() ucs.Status {
	switch {
	case f&^allFlags != 0:
		return refusedFlags
	case f&bothForms == bothForms:
		return refusedForms
	default:
		return ucs.OK
	}
}

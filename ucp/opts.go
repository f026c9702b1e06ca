package ucp

import "github.com/goucx/goucx/ucs"

// Opts are rare wishes for one operation. The zero Opts wishes nothing.
type Opts struct {
	// Mem is the registration that covers the buffer and spares its lookup.
	Mem *MemHandle
	// Flags are wishes without a value.
	Flags Flags
}

// Flags is a set of wishes. What an operation has no use for it ignores.
type Flags uint32

// Flags of messages.
const (
	// ForceEager sends the data along, however long it is.
	ForceEager Flags = 1 << iota
	// ForceRendezvous announces the data and sends it when the receiver asks,
	// however short it is. Together with ForceEager it is ErrInvalid.
	ForceRendezvous
	// WantReply lets the receiver of an active message answer through AM.From.
	WantReply
)

const (
	allFlags  = ForceEager | ForceRendezvous | WantReply
	bothForms = ForceEager | ForceRendezvous
)

// check returns OK where f can be carried out, else the reason of the refusal.
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

package ucp

// Opts are rare wishes for one operation. The zero Opts wishes nothing.
type Opts struct {
	// Mem is the registration that covers the buffer and spares its lookup.
	Mem *MemHandle
}

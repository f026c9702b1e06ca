package ucp

import "unsafe"

// as reads slot s as view T, a struct without pointers that begins with a slotHeader and has
// the size and alignment of a slot. Rule (1) of package unsafe; TestViews checks each view.
func as[T any](s *slot) *T { return (*T)(unsafe.Pointer(s)) }

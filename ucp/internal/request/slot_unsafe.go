package request

import "unsafe"

// As reads slot s as view T, a struct without pointers that begins with a Header and has
// the size and alignment of a slot. Rule (1) of package unsafe; TestViews checks each view.
func As[T any](s *Slot) *T { return (*T)(unsafe.Pointer(s)) }

//go:build !faults || !linux

package fault

// Enabled reports whether points act: in this build they do not.
const Enabled = false

// At marks a point. It does nothing in this build.
func At(Point) {}

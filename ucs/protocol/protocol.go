// Package protocol holds the version and the feature bits of every worker address, packed key and
// handshake message.
//
// Both take one byte each, at offsets that stay the same in all versions of a format. A new version
// changes the meaning of existing bytes. A feature bit announces an addition: a program
// that does not know it ignores an optional one, and refuses a required one. docs/wire/versions.md
// lists the formats and the rules for changing them.
//
// All packages that encode such bytes use it. Start reading at [Format.Check].
package protocol

import (
	"fmt"
	"strings"

	"github.com/goucx/goucx/ucs"
)

// Features are the feature bits of an address, key or message: bits 0 to 3 are required, bits 4
// to 7 optional.
type Features uint8

// Required is the half of the bits that a reader must know.
const Required Features = 0x0f

const numFeatures = 8

// Format is one kind of address, key or message, as this program knows it. It does not change.
type Format struct {
	// Name is the name of the format in errors.
	Name string
	// Version is the one that this program writes and reads.
	Version uint8
	// Features are the names of the bits that this program knows; "": unknown.
	Features [numFeatures]string
}

// Check returns nil if this program can read the format with the version and the features of its
// writer. It allocates only on error.
//
// Errors: *Error.
func (f *Format) Check(version uint8, features Features) error {
	if unknown := f.Unknown(features); version != f.Version || unknown != 0 {
		return &Error{Format: f, Version: version, Features: unknown}
	}
	return nil
}

// Unknown returns the required ones of the features that this program does not know.
func (f *Format) Unknown(features Features) (unknown Features) {
	for i, name := range f.Features {
		if name == "" {
			unknown |= features & Required & (1 << i)
		}
	}
	return unknown
}

// Error is the reason why a program of another version, or with other features, is refused. It
// unwraps to [ucs.ErrUnsupported].
type Error struct {
	Format *Format
	// Version is the peer's; Format.Version is that of this program.
	Version uint8
	// Features are the required ones that only one side knows.
	Features Features
	// Local: this program requires them, and the peer has refused them.
	Local bool
}

// Error names the format, both versions, and the features that only one side knows.
func (e *Error) Error() string {
	f := e.Format
	switch {
	case e.Version != f.Version:
		return fmt.Sprintf("%s has version %d, this program knows version %d: run one release of goucx on both sides", f.Name, e.Version, f.Version)
	case e.Local:
		return fmt.Sprintf("%s of version %d requires %s, which the peer (version %d) does not know", f.Name, f.Version, f.names(e.Features), e.Version)
	}
	return fmt.Sprintf("%s of version %d requires %s, which this program (version %d) does not know", f.Name, e.Version, f.names(e.Features), f.Version)
}

// Unwrap returns ucs.ErrUnsupported.
func (e *Error) Unwrap() error { return ucs.ErrUnsupported }

// names returns the names of the features, "feature 2" for one that this program does not know.
func (f *Format) names(features Features) string {
	var s []string
	for i, name := range f.Features {
		switch {
		case features&(1<<i) == 0:
		case name == "":
			s = append(s, fmt.Sprintf("feature %d", i))
		default:
			s = append(s, fmt.Sprintf("feature %d (%s)", i, name))
		}
	}
	return strings.Join(s, ", ")
}

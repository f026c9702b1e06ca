// Package arch contains the architecture of goucx as tables and checks the source tree against
// them: import layers; where unsafe, cgo and assembly may be used; what every package must
// document; and file lengths. It also checks the documents against the tree: links are valid, and
// the README's program compiles.
//
// Its own test, which `make test` runs, and internal/shape use it. Start reading at layers.go,
// the import table. bans.go restricts single imports; source.go checks declarations and files.
// retired.txt lists words that the tree does not use. Every rule has a reason, which a failure
// prints.
package arch

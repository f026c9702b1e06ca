// Package arch states the architecture of goucx as tables and holds the source
// tree to them: who may import whom, where unsafe, cgo and assembly may stand,
// what every package must document, how long a file may grow. It also holds the
// documents to the tree: links lead somewhere, the README's program is compiled.
//
// It is used by its own test alone, which `make check` and `make test` run.
// Start reading at layers.go, the import table; bans.go restricts single
// imports; source.go looks at declarations and files. Every rule carries the
// reason that a failure prints.
package arch

// Package config holds the settings of goucx: their tables, where their values
// come from, and which source each value came from in the end.
//
// A package contributes a [Table] of typed rows made by [New]. [Load] merges
// the sources, later ones winning:
//
//	defaults < configuration files < UCX_* environment < flags
//
// and returns a [Set], in which each row reads its own value with [Row.Get].
// A Set never changes, so any goroutine may read it; rows are package-level
// variables that hold no value themselves.
//
// Configuration files are UCX's own ucx.conf (parsed here, so that every value
// knows its line) and goucx.yaml, goucx.toml or goucx.json (read with viper,
// one instance per file). [SearchPath] lists the directories they are looked
// for in. Names are UCX's names without the UCX_ prefix, in capitals.
//
// Start reading at row.go and load.go; merge.go holds the precedence rules and
// docs/decisions/0004-config-merging.md their reasons.
package config

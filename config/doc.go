// Package config holds the settings of goucx: the setting tables, the sources of values, and the
// origin of each value.
//
// A package contributes a [Table] of typed rows created by [New]. [Load] merges the sources; later
// ones take precedence:
//
//	defaults < configuration files < UCX_* environment < flags
//
// It returns a [Set], from which each row reads its value with [Row.Get]. A Set is immutable, so
// any goroutine may read it. Rows are package-level variables that hold no value themselves.
//
// Configuration files are UCX's ucx.conf and goucx.yaml, goucx.toml or goucx.json. ucx.conf is
// parsed here, so that every value has its line number. The others are read with viper, one
// instance per file. [SearchPath] returns the directories that are searched. Setting names are
// UCX's names without the UCX_ prefix, in capitals.
//
// The variables of UCX 1.13 are in ucx-1.13.txt. A row may name some of them as its aliases. Those
// that no row reads are reported with the reason in ucxunused.go, unless they have UCX's default.
//
// Start reading at row.go and load.go. merge.go holds the precedence rules, and
// docs/decisions/0004-config-merging.md their reasons.
package config

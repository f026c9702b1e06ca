package config

import "strings"

// The rows of this package; every Set contains them.
var (
	StrictMode = New("STRICT", "n", Bool(), "",
		"Refuse settings of unknown name, and those of UCX that goucx does not use, instead of warning about them.")
	LogLevel = New("LOG_LEVEL", "WARN", logLevels(), "",
		"Log messages of this level and above. diag counts as info, what lies beyond trace as trace.")
	LogFile = New("LOG_FILE", "", String(), "",
		"File that log messages are appended to, or stdout; empty: standard error. "+
			"In its name %p is the process, %h the host, %e the program, %u the user, %t the time.")
	WarnUnused = New("WARN_UNUSED_ENV_VARS", "y", Bool(), "",
		"Warn about UCX_ environment variables of unknown name, and about settings of UCX that goucx does not use.")
)

func ownTable() Table {
	return Table{Section: "general", Settings: []Setting{StrictMode, LogLevel, LogFile, WarnUnused}}
}

// logLevels parses the names of UCX's log levels, and formats them in capitals as UCX does.
func logLevels() Parser[string] {
	p := Enum("fatal", "error", "warn", "diag", "info", "debug", "trace", "req", "data", "async", "func", "poll")
	p.Format = strings.ToUpper
	return p
}

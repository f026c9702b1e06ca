// Package log creates the logger of a program from UCX's settings LOG_LEVEL and LOG_FILE.
// Libraries do not use it: their callers pass a *zap.Logger.
package log

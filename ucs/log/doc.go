// Package log makes the one logger of a program from UCX's two settings,
// LOG_LEVEL and LOG_FILE. Libraries do not use it: they are handed a
// *zap.Logger.
package log

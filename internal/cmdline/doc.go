// Package cmdline makes what the commands' option tables and build information are good for beside
// parsing: shell completions, manual pages, versions. It is used by the commands alone. Start reading
// at Command.
package cmdline

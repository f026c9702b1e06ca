package log

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Expand expands a file name as UCX does, so that processes with the same setting write to
// different files. It expands %p to the process ID, %h to the host name, %e to the program
// name, %u to the user name and %t to the time. It removes a leading "file:". Any other %
// is unchanged.
func Expand(name string) string {
	name = strings.TrimPrefix(name, "file:")
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] == '%' && i+1 < len(name) {
			if s, ok := expansion(name[i+1]); ok {
				b.WriteString(s)
				i++
				continue
			}
		}
		b.WriteByte(name[i])
	}
	return b.String()
}

func expansion(c byte) (string, bool) {
	switch c {
	case 'p':
		return strconv.Itoa(os.Getpid()), true
	case 'h':
		host, _ := os.Hostname() // empty on error
		return host, true
	case 'e':
		return filepath.Base(os.Args[0]), true
	case 'u':
		if u, err := user.Current(); err == nil {
			return u.Username, true
		}
		return strconv.Itoa(os.Getuid()), true
	case 't':
		return time.Now().Format("2006-01-02-15-04-05"), true
	}
	return "", false
}

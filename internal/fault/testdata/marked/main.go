// Command marked passes a fault point ten times.
package main

import (
	"os"

	"github.com/goucx/goucx/internal/fault"
)

//go:noinline
func work(b []byte) (sum int) {
	for i := range b {
		if fault.Enabled {
			fault.At(fault.Reserve)
		}
		sum += int(b[i])
	}
	return sum
}

func main() {
	if work(make([]byte, 10)) != 0 {
		os.Exit(1)
	}
}

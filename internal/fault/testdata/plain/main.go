// Command plain is marked without its marks.
package main

import "os"

//go:noinline
func work(b []byte) (sum int) {
	for i := range b {
		sum += int(b[i])
	}
	return sum
}

func main() {
	if work(make([]byte, 10)) != 0 {
		os.Exit(1)
	}
}

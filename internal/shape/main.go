// Command shape prints measures of form of the module: lines of code, functions
// per 1,000 of them, sizes of types, files and folders, and words that
// docs/glossary.md retires. `make shape`; -v lists what is counted.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	verbose := flag.Bool("v", false, "list what is counted")
	flag.Parse()
	t, err := readTree(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "shape:", err)
		os.Exit(1)
	}
	fmt.Println("| measure | now |\n|---|---|")
	for _, m := range measures {
		value, list := m.count(t)
		fmt.Printf("| %s | %s |\n", m.name, value)
		if *verbose {
			for _, s := range list {
				fmt.Println("  ", s)
			}
		}
	}
}

package main

import (
	"errors"
	"os"
	"strings"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucp"
)

// sizeParser parses -m's argument like a setting's size: "4k".
var sizeParser = config.Size(1, unlimited)

// allocation prints -m: which domain allocates memory of this size, and which transports reach it.
func (t *tool) allocation() (err error) {
	n, err := sizeParser.Parse(t.memory)
	if err != nil {
		return usagef("-m %s: %w; allowed: %s", t.memory, err, sizeParser.Allowed)
	}
	c, err := t.openContext()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	m, err := c.Allocate(int(n), ucp.MemConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	i := m.Query()
	t.line("")
	t.line("UCP memory allocation")
	t.line("")
	t.line(" allocated %s at address %#x, pagesize: %s", sizeText(i.Len), i.Base, sizeText(os.Getpagesize()))
	t.line(" registered on: %s", strings.Join(i.Transports, " "))
	for _, r := range i.Refused {
		t.line(" not reachable by %s", r)
	}
	t.line(" remote key: %d bytes", len(m.Key()))
	t.line("")
	return nil
}

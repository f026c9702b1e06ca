package perf

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// localAddr is a group that knows the local address of its connection.
type localAddr interface{ LocalAddr() netip.Addr }

// findDevice opens the named device. Without a name it opens the one with the address of the
// group's connection, so that both sides reach each other. Without a connection it opens the
// first, which is the fastest.
func findDevice(c *Config, name string, g Group) (verbs.Context, error) {
	if c.Verbs == nil {
		return nil, fmt.Errorf("there is no provider of verbs: %w", ucs.ErrUnsupported)
	}
	infos, err := c.Verbs.Devices()
	if err != nil {
		return nil, err
	}
	var own netip.Addr
	conn, connected := g.(localAddr)
	if connected {
		own = conn.LocalAddr()
	}
	var known, refused []string
	for _, i := range infos {
		known = append(known, i.Name)
		if name != i.Name && name != "" {
			continue
		}
		ctx, err := c.Verbs.Open(i)
		if err != nil {
			refused = append(refused, err.Error())
			continue
		}
		if name != "" || !connected || len(infos) == 1 {
			return ctx, nil
		}
		if gid, err := ctx.GID(verbsPort, 0); err == nil && gid.Addr() == own {
			return ctx, nil
		}
		refused = append(refused, fmt.Sprintf("%s does not have the address %v of the connection", i.Name, own))
		if err := ctx.Close(); err != nil {
			return nil, err
		}
	}
	if len(refused) == 0 {
		return nil, fmt.Errorf("no device %q; there are %s", name, strings.Join(known, " "))
	}
	return nil, fmt.Errorf("no device of %s: %s", strings.Join(known, " "), strings.Join(refused, "; "))
}

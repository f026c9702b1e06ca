package wireup

import (
	"slices"
	"strings"

	"github.com/goucx/goucx/config"
)

// ucxTransports are UCX's transports and aliases, those that goucx has
// excepted: a UCX user's UCX_TLS names them without being wrong.
//
// Source: UCX's aliases in ucp_context.c, and `ucx_info -d`.
var ucxTransports = []string{
	"ib", "rc", "rc_v", "rc_x", "rc_verbs", "rc_mlx5", "ud", "ud_v", "ud_x", "ud_verbs", "ud_mlx5",
	"dc", "dc_x", "dc_mlx5", "gga", "gga_mlx5", "srd", "tcp", "rdmacm", "sockcm",
	"sysv", "cma", "knem", "xpmem", "cuda", "rocm", "ze", "gdr_copy", "gaudi",
}

// ucxFamilies begin the names of transports that one library of a vendor's
// brings to UCX.
var ucxFamilies = []string{"cuda", "rocm", "ze_", "gaudi_"}

// unknown gives those of items, which none of our transports match, that match
// none of UCX's either.
func unknown(l config.List, items []string) []string {
	names := slices.Clone(ucxTransports)
	for _, n := range ucxTransports {
		names = append(names, n+auxSuffix)
	}
	strange := l.Unmatched(names)
	return slices.DeleteFunc(slices.Clone(items), func(item string) bool {
		family := func(p string) bool { return strings.HasPrefix(item, p) }
		return !slices.Contains(strange, item) || slices.ContainsFunc(ucxFamilies, family)
	})
}

package wireup

import (
	"slices"
	"strings"

	"github.com/goucx/goucx/config"
)

// ucxTransports lists UCX's transports and aliases that goucx does not have. They are valid in
// UCX_TLS.
//
// Source: UCX's aliases in ucp_context.c, and `ucx_info -d`.
var ucxTransports = []string{
	"ib", "rc", "rc_v", "rc_x", "rc_verbs", "rc_mlx5", "ud", "ud_v", "ud_x", "ud_verbs", "ud_mlx5",
	"dc", "dc_x", "dc_mlx5", "gga", "gga_mlx5", "srd", "tcp", "rdmacm", "sockcm",
	"sysv", "cma", "knem", "xpmem", "cuda", "rocm", "ze", "gdr_copy", "gaudi",
}

// ucxFamilies lists name prefixes of UCX transports that belong to one vendor's library.
var ucxFamilies = []string{"cuda", "rocm", "ze_", "gaudi_"}

// unknown returns those items, already unmatched by goucx's transports, that match no transport of
// UCX either.
func unknown(l config.List, items []string) []string {
	names := slices.Clone(ucxTransports)
	for _, n := range ucxTransports {
		names = append(names, n+auxSuffix)
	}
	unmatched := l.Unmatched(names)
	return slices.DeleteFunc(slices.Clone(items), func(item string) bool {
		family := func(p string) bool { return strings.HasPrefix(item, p) }
		return !slices.Contains(unmatched, item) || slices.ContainsFunc(ucxFamilies, family)
	})
}

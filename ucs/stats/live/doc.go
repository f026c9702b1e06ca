// Package live shows a running program to others of the same user: its workers,
// their endpoints, pending requests and counters, as a page of JSON that each
// context of the program offers through a Unix socket.
//
// A program offers with [Offer], which serves the page from a goroutine of its
// own: it answers while the program's other goroutines compute, sleep or hang.
// [List] finds the programs of a directory, [Read] fetches a page. A socket
// disappears with its offer; one whose program crashed is removed by the next
// List or Offer.
//
// ucp fills pages and ucx_info prints them. Start reading at page.go.
package live

// Package live shows the state of a running program to other programs of the same user.
// Each context serves a page of JSON through a Unix socket. The page describes its workers
// with their endpoints, pending requests and counters.
//
// [Offer] serves a page from its own goroutine, so it replies while the program's other
// goroutines compute, sleep or hang. [List] finds the programs in a directory, [Read]
// fetches a page. Closing the Offering removes its socket. The next List or Offer removes
// the socket of a program that has crashed.
//
// ucp fills the pages and ucx_info prints them. Start reading at page.go.
package live

// Package suitetest contains what conformance suites share: the checked-in matrix of which
// implementation passes which case; a testing.TB that records failures instead of failing, for
// cases that are expected to fail; and network namespaces for tests.
package suitetest

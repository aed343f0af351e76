// Package ratelimit knows the header fields in which servers tell their
// limits: it reads what they send and writes what they should.
//
// [Wait] answers the client's question after a refusal: how long does the
// server ask me to stay away? It reads Retry-After in all the forms that RFC
// 9110 requires and in those that servers send in spite of it, the vendors'
// fields whose name alone says that they are a delay, and if there is none of
// these, when the quotas that are used up will not be. [Parse] reads all that
// any response tells of its quotas. [Set] writes a server's state in the fields of
// a [Style].
//
// The package reads leniently and writes strictly. What it reads is never
// trusted: a value that is no value counts as absent, none is negative, and
// none exceeds 2³¹ seconds, whatever was sent. Whether to retry, how much
// jitter to add, and how long is too long are the caller's decisions.
//
// Header maps must have canonical keys, as those of net/http have.
package ratelimit

// Package auth says who may do what: tokens, their roles and namespaces.
//
//	tokens := d.Tokens() // of package data
//	token, secret, err := tokens.Create(ctx, auth.Token{Namespace: auth.Everywhere, Role: auth.Read})
//	principal, err := tokens.Check(ctx, secret)
package auth

import (
	"fmt"
	"slices"
)

// Role is what a token may do. Admin may do everything; Write, and Query beside it, may do what Read may.
type Role uint8

// The roles.
const (
	None  Role = iota // needs no token
	Read              // reads
	Write             // writes, claims, acknowledges
	Admin             // creates and deletes namespaces and tokens, and operates the server
	Query             // asks by SQL, which costs the server more than what Read may ask
)

// Includes reports whether a role may do what needs another one.
func (r Role) Includes(need Role) bool {
	switch r {
	case Admin:
		return true
	case Query:
		return need <= Read || need == Query
	case Read, Write:
		return need <= r
	}

	return need == None
}

// String returns the role in lower case.
func (r Role) String() string {
	if int(r) < len(roles) {
		return roles[r]
	}

	return fmt.Sprintf("role %d", uint8(r))
}

var roles = [...]string{"none", "read", "write", "admin", "query"}

// ParseRole returns the role of that name: read, query, write or admin.
func ParseRole(name string) (Role, bool) {
	i := slices.Index(roles[:], name)
	return Role(max(i, 0)), i > 0
}

// Everywhere is the namespace of a token that is good for all of them.
const Everywhere = "*"

// Principal is who makes a request: what is known of the token.
type Principal struct {
	TokenID   string // "" if there was no token; "ns_ID" for the own token of the namespace ID
	Namespace string // Everywhere for all
	Role      Role
}

// May reports whether the principal has a role in a namespace. What belongs to no namespace is in Everywhere.
func (p Principal) May(role Role, namespace string) bool {
	return role == None || p.Role.Includes(role) && (p.Namespace == Everywhere || p.Namespace == namespace)
}

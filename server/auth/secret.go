package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// A secret is what a client sends. There are two kinds:
//
//	ns_ID_KEY    a namespace's own token: ID is the namespace in unpadded base64url
//	hf_ID_KEY    a further token: ID is the token's, 16 hexadecimal digits
//
// KEY is 64 hexadecimal digits. Only the SHA-256 of the whole secret is kept.
const (
	namespacePrefix = "ns_"
	tokenPrefix     = "hf_"
	keyDigits       = 64
	idDigits        = 16
	maxSecret       = 256 // bytes; the longest namespace makes one of 154
)

// Secret is a secret taken apart.
type Secret struct {
	Namespace string // of a namespace's own token, else ""
	ID        string // of a further token, else ""
}

// Parse takes a secret apart, without asking whether it is known. The error is ErrMalformed and does not repeat the
// secret.
func Parse(secret string) (Secret, error) {
	if len(secret) > maxSecret {
		return Secret{}, malformed("it is too long")
	}
	rest, own := strings.CutPrefix(secret, namespacePrefix)
	if !own {
		var further bool
		if rest, further = strings.CutPrefix(secret, tokenPrefix); !further {
			return Secret{}, malformed("it begins with neither ns_ nor hf_")
		}
	}
	if len(rest) < keyDigits+2 || rest[len(rest)-keyDigits-1] != '_' {
		return Secret{}, malformed("it does not end with an underscore and 64 hexadecimal digits")
	}
	id, key := rest[:len(rest)-keyDigits-1], rest[len(rest)-keyDigits:]
	if !isHex(key) {
		return Secret{}, malformed("it does not end with 64 hexadecimal digits")
	}
	if !own {
		if len(id) != idDigits || !isHex(id) {
			return Secret{}, malformed("its id is not 16 hexadecimal digits")
		}

		return Secret{ID: id}, nil
	}
	if strings.Contains(id, "_") {
		return Secret{}, malformed("it has more than two parts")
	}
	namespace, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err != nil || len(namespace) == 0 || strings.ContainsAny(id, "\r\n") { // which decoding would pass over
		return Secret{}, malformed("its namespace is not base64url")
	}

	return Secret{Namespace: string(namespace)}, nil
}

// NewNamespaceSecret makes the secret of a namespace's own token.
func NewNamespaceSecret(namespace string) string {
	return namespacePrefix + base64.RawURLEncoding.EncodeToString([]byte(namespace)) + "_" + random(keyDigits)
}

// Hash is what is kept of a secret: its SHA-256 in hexadecimal.
func Hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// random returns that many random hexadecimal digits.
func random(digits int) string {
	b := make([]byte, digits/2)
	_, _ = rand.Read(b) // ends the program rather than fail

	return hex.EncodeToString(b)
}

func isHex(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}

	return true
}

package access

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// OfRequest returns the credentials of an HTTP request: of its header
// Authorization in one of three schemes, else on the paths of InfluxDB 1 of the
// parameters u and p, and of a client certificate that was verified.
//
//	Authorization: Bearer TOKEN
//	Authorization: Token TOKEN          InfluxDB 2; Token USER:TOKEN too
//	Authorization: Basic USER:TOKEN     in base64: InfluxDB 1 and browsers
//	/write?u=USER&p=TOKEN               InfluxDB 1
//
// USER can be anything. Tokens in a URL end up in logs on their way, so that
// these parameters mean nothing elsewhere.
func OfRequest(r *http.Request) Credentials {
	var c Credentials
	if r.TLS != nil {
		c.setCertificate(r.TLS)
	}
	switch sent := r.Header["Authorization"]; len(sent) {
	case 0:
		if r.URL != nil && r.URL.RawQuery != "" && (r.URL.Path == "/write" || r.URL.Path == "/query") {
			c.Secret = r.URL.Query().Get("p")
		}
	case 1:
		c.setAuthorization(sent[0])
	default:
		c.problem = severalHeaders(len(sent))
	}
	return c
}

// OfCall returns the credentials of a gRPC call: of its metadata authorization,
// in the schemes of HTTP, and of a client certificate that was verified.
func OfCall(ctx context.Context) Credentials {
	var c Credentials
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			c.setCertificate(&info.State)
		}
	}
	switch sent := metadata.ValueFromIncomingContext(ctx, "authorization"); len(sent) {
	case 0:
	case 1:
		c.setAuthorization(sent[0])
	default:
		c.problem = severalHeaders(len(sent))
	}
	return c
}

func severalHeaders(n int) string {
	return fmt.Sprintf("the request has %d headers Authorization; allowed is one", n)
}

// setCertificate takes the certificate that a client showed and an authority
// signed, if there is one.
func (c *Credentials) setCertificate(state *tls.ConnectionState) {
	if len(state.VerifiedChains) > 0 && len(state.VerifiedChains[0]) > 0 {
		c.chain = state.VerifiedChains[0]
		c.Certificate = c.chain[0]
	}
}

func (c *Credentials) setAuthorization(value string) {
	secret, problem := secretOf([]byte(value), nil)
	c.Secret, c.problem = string(secret), problem
}

// maxBasic is the most of what Basic holds that is decoded: a token of ours is
// 48 bytes, and a name may stand before it.
const maxBasic = 1 << 10

// secretOf returns the token in the value of an Authorization header, or what is
// wrong with that. It is part of value, or of room that has grown.
func secretOf(value, room []byte) (secret []byte, problem string) {
	scheme, rest, _ := bytes.Cut(bytes.TrimSpace(value), []byte{' '})
	rest = bytes.TrimSpace(rest)
	switch {
	case isScheme(scheme, "bearer"):
	case isScheme(scheme, "token"):
		rest = rest[bytes.LastIndexByte(rest, ':')+1:]
	case isScheme(scheme, "basic"):
		if len(rest) > maxBasic {
			return nil, fmt.Sprintf("what follows Basic in the header Authorization has %d bytes; allowed are %d", len(rest), maxBasic)
		}
		decoded, err := base64.StdEncoding.AppendDecode(room, rest)
		_, after, found := bytes.Cut(decoded, []byte{':'})
		if err != nil || !found {
			return nil, "what follows Basic in the header Authorization is not NAME:TOKEN in base64"
		}
		rest = after
	default: // what it is stays unsaid: it may be a token without its scheme
		return nil, "the scheme of the header Authorization is unknown; allowed are Bearer TOKEN, Token TOKEN, and Basic with NAME:TOKEN in base64"
	}
	if len(rest) == 0 {
		return nil, "the header Authorization holds no token"
	}
	return rest, ""
}

// isScheme compares without regard to case, and lower is in small letters.
func isScheme(b []byte, lower string) bool {
	return len(b) == len(lower) && strings.EqualFold(string(b), lower) // nothing is copied for a comparison
}

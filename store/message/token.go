package message

import (
	"encoding/json"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// TakeTokens takes what earlier versions kept in the descriptions of namespaces out of them, for the one who keeps
// tokens now: the SHA-256 of a namespace's token, in hexadecimal, by the namespace's id. Descriptions that cannot be
// read stay as they are. The transaction writes about most bytes for that; more reports that there are others.
func (t ListTx) TakeTokens(most int) (tokens map[string]string, more bool, err error) {
	p, err := t.enter()
	if err != nil {
		return nil, false, err
	}
	defer t.tx.Leave()
	s := p.s
	tokens = map[string]string{}
	lo, hi := s.keys.Table(format.TableNamespaces)
	it := s.eng.Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()
	for it.Next() {
		var old struct {
			description
			Token string `json:"token"`
		}
		id := string(s.keys.Rest(it.Key()))
		if json.Unmarshal(it.Value(), &old) != nil || old.Token == "" {
			continue
		}
		if p.batch.Size() >= most {
			return tokens, true, nil
		}
		if err := s.addDescription(&p.batch, id, old.description); err != nil {
			return nil, false, err
		}
		tokens[id] = old.Token
	}
	return tokens, false, it.Err()
}

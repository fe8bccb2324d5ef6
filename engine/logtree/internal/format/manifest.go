package format

import (
	"bytes"
	"encoding/binary"
)

// Position is a point between two frames of the log.
type Position struct {
	Segment uint32 // 0 before the first segment
	Offset  int64
	LSN     uint64
	Seq     uint64 // of the last operation before it
}

// The manifest says which tables are alive, in which tiers, and from which position on the log holds what they do
// not. It is replaced as a whole: written under another name, synced, renamed, and the directory synced.
// Little-endian:
//
//	magic     8   "HOLDFMAN"
//	version   4
//	length    4   of the body
//	sum       4   CRC32C of magic, version, length and body
//	body          uvarints, and strings with their length as uvarint before them
//
// and the body
//
//	database (16 bytes)
//	next file number, next tier number
//	position: segment, offset, lsn, seq
//	synced: an lsn that the log reached before the manifest was written
//	number of tiers, newest first, of each
//	    id, number of refs, of each
//	        table's number, lo, hi
//	number of segments that the log has left behind, moved ones included, of each
//	    id, bytes of the file that hold frames, bytes of keys and values in them
const (
	ManifestMagic   = "HOLDFMAN"
	ManifestVersion = 1
	ManifestHeader  = 20
)

// Manifest is the decoded form.
type Manifest struct {
	DB       DatabaseID
	NextFile uint64
	NextTier uint64
	From     Position
	Synced   uint64
	Tiers    []ManifestTier
	Segments []ManifestSegment
}

// ManifestTier is a sequence of tables that do not overlap, in the order of their keys.
type ManifestTier struct {
	ID   uint64
	Refs []ManifestRef
}

// ManifestRef is the part of a table that counts: its keys in [Lo, Hi), where an empty bound cuts nothing.
type ManifestRef struct {
	Table  uint64
	Lo, Hi []byte
}

// ManifestSegment is one that the log has left behind, or of moved values.
type ManifestSegment struct {
	ID      uint32
	Size    int64
	Payload int64
}

// Encode returns the file's bytes.
func (m *Manifest) Encode() []byte {
	b := make([]byte, ManifestHeader, 1024)

	put := func(n uint64) { b = binary.AppendUvarint(b, n) }
	str := func(s []byte) { put(uint64(len(s))); b = append(b, s...) }

	// The numbers follow in the order in which DecodeManifest takes them; nothing names a field, so a new one needs a
	// new version.
	b = append(b, m.DB[:]...)
	put(m.NextFile)
	put(m.NextTier)
	put(uint64(m.From.Segment))
	put(uint64(m.From.Offset))
	put(m.From.LSN)
	put(m.From.Seq)
	put(m.Synced)

	// Lists have their length in front.
	put(uint64(len(m.Tiers)))

	for _, t := range m.Tiers {
		put(t.ID)
		put(uint64(len(t.Refs)))

		for _, r := range t.Refs {
			put(r.Table)
			str(r.Lo)
			str(r.Hi)
		}
	}
	put(uint64(len(m.Segments)))

	for _, s := range m.Segments {
		put(uint64(s.ID))
		put(uint64(s.Size))
		put(uint64(s.Payload))
	}

	// The header comes last: it has the length and the sum of all that was put behind it.
	copy(b, ManifestMagic)
	binary.LittleEndian.PutUint32(b[8:], ManifestVersion)
	binary.LittleEndian.PutUint32(b[12:], uint32(len(b)-ManifestHeader))
	sum := UpdateChecksum(Checksum(b[:16]), b[ManifestHeader:])
	binary.LittleEndian.PutUint32(b[16:], sum)

	return b
}

// DecodeManifest is the inverse of [Manifest.Encode], and copies; name is for errors. ErrVersion: it has a newer
// format. ErrCorrupt: anything else that is wrong.
func DecodeManifest(b []byte, name string) (*Manifest, error) {
	if len(b) < ManifestHeader || string(b[:8]) != ManifestMagic {
		return nil, Corrupt(name, 0, "it is no manifest", nil)
	}
	body := b[ManifestHeader:]
	if UpdateChecksum(Checksum(b[:16]), body) != binary.LittleEndian.Uint32(b[16:]) ||
		uint32(len(body)) != binary.LittleEndian.Uint32(b[12:]) {
		return nil, Corrupt(name, 0, "the checksum is wrong", nil)
	}

	// The version is believed only under a right checksum: a damaged one is no newer format.
	if v := binary.LittleEndian.Uint32(b[8:]); v != ManifestVersion {
		return nil, Newer(name, v)
	}

	// The checksum is right, so the program that wrote it was wrong if something is. Lengths are bounded by what is left
	// all the same: nothing is allocated by what a number says.
	bad := func() (*Manifest, error) {
		return nil, Corrupt(name, int64(len(b)-len(body)), "the contents make no sense", nil)
	}
	ok := true
	num := func() uint64 {
		n, w := binary.Uvarint(body)
		if w <= 0 {
			ok, body = false, nil
			return 0
		}
		body = body[w:]

		return n
	}
	str := func() []byte {
		n := num()
		if n > uint64(len(body)) {
			ok, body = false, nil
			return nil
		}
		s := bytes.Clone(body[:n])
		body = body[n:]

		return s
	}

	// A call of num or str after a fault returns nothing, so that ok is looked at once, at the end.
	m := &Manifest{}
	if len(body) < len(m.DB) {
		return bad()
	}
	body = body[copy(m.DB[:], body):]
	m.NextFile, m.NextTier = num(), num()
	m.From = Position{Segment: uint32(num()), Offset: int64(num()), LSN: num(), Seq: num()}
	m.Synced = num()

	for n := num(); n > 0 && ok; n-- {
		t := ManifestTier{ID: num()}
		for k := num(); k > 0 && ok; k-- {
			t.Refs = append(t.Refs, ManifestRef{Table: num(), Lo: str(), Hi: str()})
		}
		m.Tiers = append(m.Tiers, t)
	}

	for n := num(); n > 0 && ok; n-- {
		m.Segments = append(m.Segments, ManifestSegment{ID: uint32(num()), Size: int64(num()), Payload: int64(num())})
	}

	if !ok || len(body) > 0 {
		return bad()
	}

	return m, nil
}

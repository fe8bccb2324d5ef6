// Package rust drives contenders for the crash lab that are written in Rust. It has nothing but a test, which crashes a
// small program over the crate thunderdb and prints what is left of it. See src/main.rs for the program and its lines
// of output:
//
//	cargo build --release --manifest-path lab/contender/rust/Cargo.toml
//	go test -v ./lab/contender/rust -kills 50 -cuts 100
package rust

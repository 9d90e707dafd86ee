//! `libtautaio.so`.

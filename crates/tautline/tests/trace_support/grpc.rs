//! A server of gRPC on tokio, by the HTTP/2 of hyper and tonic, and a client. Each answer is a stream of two messages,
//! of which the second one is not ready when the first one is sent.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{RecvStream, client, server};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

const MESSAGES: [&[u8]; 2] = [&[1; 40], &[2; 60]];
/// What the server needs for the second message.
const WORK: Duration = Duration::from_millis(1);

/// Serves until the process ends.
pub(crate) fn serve(port: u16, is_nodelay: bool) {
    runtime().block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(is_nodelay).unwrap();
            tokio::spawn(connection(stream));
        }
    });
}

/// Calls the server for a time, one call after the other.
pub(crate) fn call(port: u16) {
    runtime().block_on(async {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (mut calls, connection) = client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let end = Instant::now() + Duration::from_millis(2500);
        while Instant::now() < end {
            calls = calls.ready().await.unwrap();
            let request = Request::post(format!("http://127.0.0.1:{port}/test.Test/Watch"));
            let request = request.header("content-type", "application/grpc").header("te", "trailers");
            let (response, mut question) = calls.send_request(request.body(()).unwrap(), false).unwrap();
            question.send_data(message(b"?"), true).unwrap();
            let response = response.await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            let mut body = response.into_body();
            assert_eq!(all_of(&mut body).await.unwrap(), MESSAGES.map(message).concat());
            assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
            sleep(Duration::from_millis(5)).await;
        }
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn connection(stream: TcpStream) -> Result<(), h2::Error> {
    let mut connection = server::handshake(stream).await?;
    while let Some(call) = connection.accept().await {
        let (request, respond) = call?;
        tokio::spawn(answer(request, respond));
    }
    Ok(())
}

async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) -> Result<(), h2::Error> {
    all_of(&mut request.into_body()).await?;
    let response = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    let mut stream = respond.send_response(response, false)?;
    stream.send_data(message(MESSAGES[0]), false)?;
    sleep(WORK).await;
    stream.send_data(message(MESSAGES[1]), false)?;
    stream.send_trailers(HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))]))
}

async fn all_of(body: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        all.extend(data);
    }
    Ok(all)
}

/// A message, not compressed, behind its length.
fn message(content: &[u8]) -> Bytes {
    let mut message = BytesMut::new();
    message.put_u8(0);
    message.put_u32(content.len() as u32);
    message.put_slice(content);
    message.freeze()
}

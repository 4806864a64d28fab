# capture-proxy as an image of one static binary.
#
#   docker build -t capture-proxy .
#   docker run -p 8100:8100 -v capture-data:/data -e CAPTURE_PROXY_ADMIN_KEY=… capture-proxy serve --upstream http://engine:8000
#
# It listens beyond loopback, so it refuses to start without an admin key.

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# The version is the commit that Go finds in .git.
RUN git config --global --add safe.directory /src && \
    CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /out/capture-proxy ./cmd/capture-proxy
# A volume takes over the owner of the folder that it covers.
RUN mkdir /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/capture-proxy /usr/local/bin/capture-proxy
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
ENV CAPTURE_PROXY_DATA=/data CAPTURE_PROXY_LISTEN=0.0.0.0:8100
VOLUME /data
EXPOSE 8100
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/capture-proxy"]
CMD ["serve"]

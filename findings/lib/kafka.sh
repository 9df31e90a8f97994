# Apache Kafka of Maven Central in the temporary folder $dir, for the findings that need a broker (sourced by them).

fetch() { # TARGET GROUP:ARTIFACT:VERSION...: copy the jars and what they depend on to $dir/TARGET
    local target=$1 pom="$dir/$1.xml" each
    shift
    {
        echo '<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId>'
        echo '<version>1</version><packaging>pom</packaging><dependencies>'
        for each in "$@"; do
            IFS=: read -r group artifact version <<<"$each"
            echo "<dependency><groupId>$group</groupId><artifactId>$artifact</artifactId>"
            echo "<version>$version</version></dependency>"
        done
        echo '</dependencies></project>'
    } >"$pom"
    mvn -q -B -f "$pom" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
        -DincludeScope=runtime "-DoutputDirectory=$dir/$target"
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

start_kafka() { # VERSION TRANSACTION_VERSION [ADVERTISED_PORT]: sets $port and $kafka, the process
    local controller run
    fetch kafka "org.apache.kafka:kafka_2.13:$1" org.apache.logging.log4j:log4j-slf4j-impl:2.25.4
    port=$(free_port)
    controller=$(free_port)
    cat >"$dir/server.properties" <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:${3:-$port}
log.dirs=$dir/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=3
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
END
    run=(java -Xmx384m -XX:+UseSerialGC -cp "$dir/kafka/*")
    "${run[@]}" kafka.tools.StorageTool format -t FindingsCluster0000000 -c "$dir/server.properties" \
        --feature "transaction.version=$2" >"$dir/kafka.log" 2>&1 || { cat "$dir/kafka.log"; exit 1; }
    "${run[@]}" kafka.Kafka "$dir/server.properties" >"$dir/kafka.log" 2>&1 &
    kafka=$!
    until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
        kill -0 $kafka || { tail -n 20 "$dir/kafka.log"; exit 1; }
        sleep 0.3
    done
}

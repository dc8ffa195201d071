// kafkajs as a verifiable client. It prints the events that tests/harness/verifiable/words.py
// describes.
const { Kafka, logLevel } = require('kafkajs')

const fs = require('fs')
const [bootstrap, topic] = process.argv.slice(2)
const trusted = process.env.VERIFIABLE_CA
const username = process.env.VERIFIABLE_USER
const password = process.env.VERIFIABLE_PASSWORD
const kafka = new Kafka({
  clientId: 'verifiable',
  brokers: bootstrap.split(','),
  ssl: trusted ? { ca: [fs.readFileSync(trusted)] } : false,
  sasl: username ? { mechanism: 'scram-sha-512', username, password } : undefined,
  // Log in again this long before the end of a session. With the default of 10 s kafkajs would log
  // in before each request of a session of 10 s, and brokers refuse that, also Kafka.
  reauthenticationThreshold: 3_000,
  logLevel: logLevel.NOTHING,
})
const PARTITIONS = 3
const PER_SEND = 3
const PACE_MS = 30
const PER_TRANSACTION = 10
const TRANSACTION_PACE_MS = 100
const ABORT_EVERY = 5

let writes = true
let reads = true
process.stdin.once('data', () => (writes = false))
process.stdin.on('end', () => (reads = false))

const say = (name, fields) => console.log(JSON.stringify({ name, ...fields }))
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const failed = (doing, of, error) =>
  say('error', { doing, topic: of, exception: error.type || error.name, message: error.message })

// Sends one request at a time, because only then kafkajs keeps the order of an idempotent producer.
// Sends one request per partition, because version 2.2.4 can lose records: if a leader moves to a
// broker that has already answered for another partition of the same send, kafkajs does not send
// the records of the moved partition, but reports success.
async function send(to, of, numbers, transaction) {
  for (let partition = 0; partition < PARTITIONS; partition++) {
    const here = numbers.filter((number) => number % PARTITIONS === partition)
    const messages = here.map((number) => ({ value: `${number}`, partition }))
    await to.send({ topic: of, messages, acks: -1 })
    for (const number of here) {
      const fields = { topic: of, value: `${number}`, partition }
      say('producer_send_success', { ...fields, offset: -1, transaction })
    }
  }
}

const from = (first, count) => Array.from({ length: count }, (_, index) => first + index)

async function produce(of) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (let turn = 0; writes; turn++) {
    try {
      await send(producer, of, from(turn * PER_SEND, PER_SEND), -1)
    } catch (error) {
      failed('produce', of, error)
    }
    await pause(PACE_MS)
  }
  await producer.disconnect()
}

async function transact(of) {
  const settings = { transactionalId: of, idempotent: true, maxInFlightRequests: 1 }
  let producer = null
  for (let number = 0; writes; number++) {
    const commits = number % ABORT_EVERY !== ABORT_EVERY - 1
    try {
      if (producer === null) {
        producer = kafka.producer(settings)
        await producer.connect()
      }
      const transaction = await producer.transaction()
      await send(transaction, of, from(number * PER_TRANSACTION, PER_TRANSACTION), number)
      await (commits ? transaction.commit() : transaction.abort())
      say('transaction_ended', { topic: of, transaction: number, is_committed: commits })
    } catch (error) {
      failed('transact', of, error)
      if (producer !== null) await producer.disconnect().catch(() => {})
      producer = null
    }
    await pause(TRANSACTION_PACE_MS)
  }
  if (producer !== null) await producer.disconnect()
}

// Reads with one consumer after the other. kafkajs restarts a consumer itself after most errors, but
// not if a broker is killed during a login: it takes that for a wrong password.
async function consume(topics) {
  while (reads) {
    const consumer = kafka.consumer({ groupId: `${topic}-readers`, readUncommitted: false })
    let runs = true
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      failed('consume', topic, payload.error)
      runs = payload.restart
    })
    try {
      await read(consumer, topics)
      while (reads && runs) await pause(PACE_MS)
    } catch (error) {
      failed('consume', topic, error)
      await pause(TRANSACTION_PACE_MS)
    }
    await consumer.disconnect().catch(() => {})
  }
}

async function read(consumer, topics) {
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    const assigned = Object.entries(payload.memberAssignment)
    const partitions = assigned.flatMap(([of, all]) => all.map((one) => [of, one]))
    say('partitions_assigned', { partitions })
  })
  await consumer.connect()
  await consumer.subscribe({ topics, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch }) => {
      for (const { offset, value } of batch.messages) {
        const place = { topic: batch.topic, partition: batch.partition, offset: Number(offset) }
        say('record_data', { ...place, value: value.toString() })
      }
      const { topic: of, partition } = batch
      const next = `${BigInt(batch.lastOffset()) + 1n}`
      try {
        await consumer.commitOffsets([{ topic: of, partition, offset: next }])
      } catch (error) {
        failed('commit', of, error)
      }
    },
  })
}

async function main() {
  const inTransactions = `${topic}-tx`
  const reading = consume([topic, inTransactions])
  await Promise.all([produce(topic), transact(inTransactions)])
  say('writing_ended', {})
  await reading
  say('shutdown_complete', {})
  process.exit(0)
}

main().catch((error) => {
  failed('run', topic, error)
  process.exit(1)
})

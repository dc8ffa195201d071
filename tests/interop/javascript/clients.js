// Tests kafkajs with records, groups whose members join and leave, transactions, and
// administration. A check that fails throws. kafkajs itself logs to standard error.
const assert = require('assert')
const { Kafka, CompressionTypes, logLevel } = require('kafkajs')

const [bootstrap, ...rest] = process.argv.slice(2)
const kafka = new Kafka({
  clientId: 'check',
  brokers: bootstrap.split(','),
  logLevel: logLevel.WARN,
})
const COUNT = 300

async function until(condition) {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 10))
}

async function records(topic) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
    const messages = []
    for (let number = 0; number < COUNT; number++) {
      messages.push({
        key: number % 3 ? `k${number}` : null,
        value: `${compression}:${number}`,
        headers: { number: `${number}` },
        partition: 0,
      })
    }
    await producer.send({ topic, messages, compression, acks: -1 })
  }
  await producer.disconnect()
  const found = []
  const consumer = kafka.consumer({ groupId: `${topic}-readers` })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ partition, message }) => {
      if (partition === 0) found.push(message)
    },
  })
  await until(() => found.length >= 2 * COUNT)
  await consumer.disconnect()
  found.forEach((one, index) => {
    assert.strictEqual(one.offset, `${index}`)
    assert.strictEqual(one.value.toString(), `${index < COUNT ? 0 : 1}:${index % COUNT}`)
    assert.strictEqual(one.headers.number.toString(), `${index % COUNT}`)
  })
}

async function groups(topic) {
  const producer = kafka.producer()
  await producer.connect()
  const messages = []
  for (let number = 0; number < COUNT; number++) messages.push({ value: `${number}` })
  await producer.send({ topic, messages })
  const seen = new Set()
  const members = []
  for (let number = 0; number < 3; number++) {
    const consumer = kafka.consumer({ groupId: `${topic}-members` })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({ eachMessage: async ({ message }) => seen.add(message.value.toString()) })
    members.push(consumer)
  }
  await until(() => seen.size === COUNT)
  await members[0].disconnect()
  await producer.send({ topic, messages: [{ value: 'late' }] })
  await until(() => seen.has('late'))
  const admin = kafka.admin()
  await admin.connect()
  const { groups: described } = await admin.describeGroups([`${topic}-members`])
  assert.strictEqual(described[0].errorCode, 0)
  await Promise.all(members.slice(1).map((one) => one.disconnect()))
  await admin.disconnect()
  await producer.disconnect()
}

async function transactions(input, output) {
  const producer = kafka.producer({
    transactionalId: `tx-${output}`,
    idempotent: true,
    maxInFlightRequests: 1,
  })
  await producer.connect()
  for (const commits of [false, true]) {
    const transaction = await producer.transaction()
    const mark = commits ? 'committed' : 'aborted'
    await transaction.send({
      topic: output,
      messages: [0, 1, 2].map((number) => ({ value: `${mark}-${number}`, partition: 0 })),
    })
    await transaction.sendOffsets({
      consumerGroupId: `${input}-group`,
      topics: [{ topic: input, partitions: [{ partition: 0, offset: commits ? '7' : '3' }] }],
    })
    await (commits ? transaction.commit() : transaction.abort())
  }
  await producer.disconnect()
  const found = []
  const consumer = kafka.consumer({ groupId: `${output}-readers`, readUncommitted: false })
  await consumer.connect()
  await consumer.subscribe({ topics: [output], fromBeginning: true })
  await consumer.run({ eachMessage: async ({ message }) => found.push(message.value.toString()) })
  await until(() => found.length >= 3)
  await consumer.disconnect()
  assert.deepStrictEqual(found, ['committed-0', 'committed-1', 'committed-2'])
  const admin = kafka.admin()
  await admin.connect()
  const offsets = await admin.fetchOffsets({ groupId: `${input}-group`, topics: [input] })
  const first = offsets[0].partitions.find((one) => one.partition === 0)
  assert.strictEqual(first.offset, '7')
  await admin.disconnect()
}

async function administration(topic, nodes) {
  const admin = kafka.admin()
  await admin.connect()
  const made = { topic, numPartitions: 2, configEntries: [{ name: 'retention.ms', value: '9000' }] }
  assert.strictEqual(await admin.createTopics({ topics: [made], waitForLeaders: true }), true)
  assert.strictEqual(await admin.createTopics({ topics: [made] }), false)
  assert.ok((await admin.listTopics()).includes(topic))
  await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  assert.strictEqual(topics[0].partitions.length, 3)
  const resource = { type: 2, name: topic }
  await admin.alterConfigs({
    validateOnly: false,
    resources: [{ ...resource, configEntries: [{ name: 'segment.ms', value: '7000' }] }],
  })
  const { resources } = await admin.describeConfigs({
    includeSynonyms: true,
    resources: [{ ...resource, configNames: [] }],
  })
  const value = (name) => resources[0].configEntries.find((one) => one.configName === name)
  assert.strictEqual(value('segment.ms').configValue, '7000')
  assert.strictEqual(value('retention.ms').configValue, '604800000')
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic, messages: [{ value: 'a', partition: 0 }] })
  await producer.disconnect()
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '1' }] })
  const offsets = await admin.fetchTopicOffsets(topic)
  const first = offsets.find((one) => one.partition === 0)
  assert.deepStrictEqual([first.low, first.high], ['1', '1'])
  const groupId = `${topic}-group`
  await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '1' }] })
  assert.ok((await admin.listGroups()).groups.some((one) => one.groupId === groupId))
  await admin.deleteGroups([groupId])
  const { brokers, controller } = await admin.describeCluster()
  assert.strictEqual(brokers.length, Number(nodes))
  assert.ok(brokers.some((one) => one.nodeId === controller))
  await admin.deleteTopics({ topics: [topic] })
  await admin.disconnect()
}

const work = { records, groups, transactions, administration }
work[rest[0]](...rest.slice(1)).then(
  () => console.log('done'),
  (error) => {
    console.error(error)
    process.exit(1)
  }
)
